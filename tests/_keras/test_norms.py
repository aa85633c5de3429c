"""Norms of gradients and updates, compared with NumPy in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras import step_hooks
from kerasmgpu.callbacks import Monitors
from kerasmgpu.errors import InputError
from tests.callbacks import event_files

RNG = np.random.default_rng(0)
ROWS, WORDS, WIDTH = 22, 30, 4
BATCH, RATE = 5, 0.5
TOKENS = RNG.integers(0, 9, (ROWS, 6)).astype("int32")  # Many twice.
TARGETS = RNG.normal(size=(ROWS, WIDTH)).astype("float32")


def compiled(strategy=None, kind=keras.Model, optimizer=None, **options):
    keras.utils.set_random_seed(1)
    with (strategy or tf.distribute.get_strategy()).scope():
        tokens = keras.Input((6,), dtype="int32")
        words = keras.layers.Embedding(WORDS, WIDTH, name="words")(tokens)
        means = keras.layers.GlobalAveragePooling1D()(words)
        outputs = keras.layers.Dense(WIDTH, name="dense", dtype="float32")(
            means
        )
        model = kind(tokens, outputs)
        optimizer = optimizer or keras.optimizers.SGD(RATE)
        model.compile(optimizer, "mse", **{"jit_compile": False, **options})
    return model


def fit(model, *callbacks):
    model.fit(
        TOKENS,
        TARGETS,
        batch_size=BATCH,
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )
    return model.get_weights()


def by_hand(weights):
    """Yields each step's gradients, by the chain rule on the mean of squares."""
    table, kernel, bias = (w.astype(np.float64) for w in weights)
    for _ in range(2):
        for first in range(0, ROWS, BATCH):
            tokens = TOKENS[first : first + BATCH]
            means = table[tokens].mean(1)
            error = means @ kernel + bias - TARGETS[first : first + BATCH]
            error *= 2 / error.size
            of_table = np.zeros_like(table)
            of_means = error @ kernel.T / tokens.shape[1]
            np.add.at(of_table, tokens, of_means[:, None, :])
            grads = of_table, means.T @ error, error.sum(0)
            yield grads
            for weight, grad in zip((table, kernel, bias), grads):
                weight -= RATE * grad


def assert_norms(folder, weights, every=1, rtol=1e-4):
    found = event_files.values(folder)
    names = "words/embeddings", "dense/kernel", "dense/bias"
    steps = 0
    for step, grads in enumerate(by_hand(weights), 1):
        if step % every:
            assert step not in found["l2_norm/grad/global"]
            continue
        steps += 1
        norms = [np.linalg.norm(grad) for grad in grads]
        for name, norm in zip(
            (*names, "global"), (*norms, np.linalg.norm(norms))
        ):
            for kind, factor in (("grad", 1), ("update", RATE)):
                np.testing.assert_allclose(
                    found[f"l2_norm/{kind}/{name}"][step], factor * norm, rtol
                )
    assert steps == 10 // every


STRATEGIES = {
    "3": lambda: kerasmgpu.strategy(3),
    "sharded": lambda: kerasmgpu.strategy(
        2, shard="weights", min_shard_bytes=0
    ),
    "one": lambda: None,
    "sharded slots": lambda: kerasmgpu.strategy(
        2, shard="optimizer", min_shard_bytes=0
    ),
}


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("name", STRATEGIES)
def test_norms_are_exact_and_training_is_the_same(tmp_path, name):
    model = compiled(STRATEGIES[name]())
    weights = model.get_weights()
    monitored = fit(model, Monitors(tmp_path, every=3, norms="variables"))
    assert_norms(tmp_path, weights, every=3)
    for found, expected in zip(monitored, fit(compiled(STRATEGIES[name]()))):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize(
    "num_replicas, options",
    [
        (2, {"jit_compile": True}),
        (2, {"run_eagerly": True}),
        (2, {"optimizer": lambda: keras.optimizers.SGD(RATE, clipnorm=1e3)}),
        (
            1,
            {
                "optimizer": lambda: keras.optimizers.LossScaleOptimizer(
                    keras.optimizers.SGD(RATE), initial_scale=1024
                )
            },
        ),
    ],
    ids=["xla", "eager", "clipnorm", "LossScaleOptimizer"],
)
def test_norms_of_other_steps(tmp_path, num_replicas, options):
    strategy = kerasmgpu.strategy(2) if num_replicas == 2 else None
    options = dict(options)
    if "optimizer" in options:
        with (strategy or tf.distribute.get_strategy()).scope():
            options["optimizer"] = options["optimizer"]()
    model = compiled(strategy, **options)
    weights = model.get_weights()
    fit(model, Monitors(tmp_path, every=1, norms="variables"))
    assert_norms(tmp_path, weights)


def test_gradients_count_before_clipping(tmp_path):
    model = compiled(optimizer=keras.optimizers.SGD(RATE, global_clipnorm=0.01))
    first = next(by_hand(model.get_weights()))
    fit(model, Monitors(tmp_path, every=1, norms="global"))
    found = event_files.values(tmp_path)
    norm = np.sqrt(sum(np.square(grad).sum() for grad in first))
    assert found["l2_norm/grad/global"][1] == pytest.approx(norm, rel=1e-4)
    # Keras takes words that occur twice for two when it clips.
    assert found["l2_norm/update/global"][1] == pytest.approx(
        0.01 * RATE, rel=0.1
    )
    assert not any("words" in tag for tag in found)


def test_norms_have_no_loss_scale(tmp_path):
    found = {}
    for factor in (None, 8.0):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(RATE, loss_scale_factor=factor)
        model.compile(optimizer, "mse", jit_compile=False)
        monitors = Monitors(tmp_path / str(factor), every=1, norms="global")
        model.fit(TARGETS, TARGETS[:, :1], verbose=0, callbacks=[monitors])
        found[factor] = event_files.values(tmp_path / str(factor))
    for kind in ("grad", "update"):
        (norm,), (expected,) = (
            found[factor][f"l2_norm/{kind}/global"].values()
            for factor in (8.0, None)
        )
        assert norm == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_other_steps_run_the_model_s_own_program(tmp_path):
    traced = []

    class Traced(keras.Model):
        def train_step(self, data):
            traced.append(self)
            return super().train_step(data)

    model = compiled(kerasmgpu.strategy(2), Traced)
    fit(model)
    once, step = len(traced), model.train_step
    function = model.train_function
    fit(model, Monitors(tmp_path, every=7))
    assert len(traced) == once
    fit(model, Monitors(tmp_path, every=7, norms="global"))
    assert len(traced) > once
    once = len(traced)
    fit(model)
    assert len(traced) == once
    assert model.train_function is function
    assert model.train_step == step and "train_step" not in vars(model)


def test_hooks_of_other_callbacks_run_around_the_step_with_norms(tmp_path):
    class Counts(step_hooks.StepHook):
        def around(self, run, iterator):
            steps.append(iterator)
            return run(iterator)

    class Adds(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            step_hooks.add(self.model, Counts(), innermost=True)

    steps, model = [], compiled()
    weights = model.get_weights()
    fit(model, Monitors(tmp_path, every=1, norms="variables"), Adds())
    assert_norms(tmp_path, weights)
    assert len(steps) == 10


def test_a_step_that_another_callback_has_replaced_is_kept(tmp_path):
    model, called = compiled(), []
    original = model.train_step

    def train_step(data):
        called.append(data)
        return original(data)

    object.__setattr__(model, "train_step", train_step)
    fit(model, Monitors(tmp_path, every=1, norms="global"))
    assert model.train_step is train_step and called
    assert event_files.values(tmp_path)["l2_norm/grad/global"]


@pytest.mark.slow
def test_another_fit_has_the_same_trace_and_a_compiled_model_another(tmp_path):
    traced = []

    class Traced(keras.Model):
        def train_step(self, data):
            traced.append(self)
            return super().train_step(data)

    model = compiled(None, Traced)
    monitors = Monitors(tmp_path, every=1, norms="global")
    fit(model, monitors)
    once = len(traced)
    fit(model, monitors)
    assert len(traced) == once
    model.compile(keras.optimizers.SGD(4 * RATE), "mse", jit_compile=False)
    fit(model, monitors)
    found = event_files.values(tmp_path)
    grad, update = (
        found[f"l2_norm/{kind}/global"] for kind in ("grad", "update")
    )
    # The new optimizer counts from the beginning.
    assert list(grad) == [*range(1, 11), *range(11, 21)]
    for step in range(1, 21):
        rate = 4 * RATE if step < 11 else RATE
        assert update[step] == pytest.approx(rate * grad[step], rel=1e-4)


@pytest.mark.parametrize("step", ["no dictionary", "no apply"])
def test_a_train_step_that_has_no_norms(tmp_path, step):
    class Own(keras.Model):
        def train_step(self, data):
            return (
                tf.constant(1.0) if step == "no dictionary" else {"loss": 1.0}
            )

    model = compiled(kind=Own)
    with pytest.raises(InputError, match="a train_step of Own that does not"):
        fit(model, Monitors(tmp_path, every=1, norms="global"))
