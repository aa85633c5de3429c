"""Steps with and without XLA are measured, and the faster way stays."""

import logging
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import callbacks
from kerasmgpu._keras import xla_choice, xla_trial
from kerasmgpu.callbacks import choose_xla
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.background_compilation import (
    BackgroundCompilation,
)

ROWS = np.random.default_rng(0).normal(size=(90, 6))
TARGETS = ROWS[:, :2]


class Until(keras.callbacks.Callback):
    """Ends training some epochs after a choice."""

    def __init__(self, choose, more=2):
        super().__init__()
        self.choose, self.left = choose, more

    def on_epoch_end(self, epoch, logs=None):
        if self.choose.uses_xla is not None:
            self.left -= 1
        self.model.stop_training = self.left < 0


def compiled(strategy, optimizer="adam", dtype="float32", **settings):
    with strategy.scope():
        keras.utils.set_random_seed(0)
        keras.config.set_dtype_policy(dtype)
        inputs = keras.Input((6,))
        hidden = keras.layers.Dense(5, activation="tanh")(inputs)
        hidden = keras.layers.BatchNormalization()(hidden)
        hidden = Picking()(keras.layers.Dropout(0.1)(hidden))
        model = keras.Model(inputs, keras.layers.Dense(2)(hidden))
        model.compile(optimizer, "mse", **settings)
    keras.config.set_dtype_policy("float32")
    return model


def fit(model, added, epochs=400, rows=90, **settings):
    return model.fit(
        ROWS[:rows],
        TARGETS[:rows],
        batch_size=20,  # The last batch of 90 has 10 rows.
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=added,
        **settings,
    )


@pytest.fixture
def runs(monkeypatch):
    """Which form ran each step that a batch was passed to."""
    seen = []
    call = BackgroundCompilation.__call__

    def seeing(self, tensors):
        is_used = tuple(tuple(one.shape) for one in tensors) in self._used
        seen.append("compiled" if is_used else "recording")
        return call(self, tensors)

    monkeypatch.setattr(BackgroundCompilation, "__call__", seeing)
    return seen


def choosing(with_xla, executions=2):
    """A `ChooseXla` that finds that a step with XLA takes so many ms, not 10."""
    choose = callbacks.ChooseXla(executions)
    decide = choose.decide

    def planted(seconds):
        assert {kind: len(own) for kind, own in seconds.items()} == {
            False: executions,
            True: executions,
        }
        return decide({False: [0.01] * 2, True: [with_xla / 1e3] * 2})

    choose.decide = planted
    return choose


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "num_replicas, settings, with_xla, rows",
    [
        (2, {}, 8.0, 80),
        pytest.param(2, {}, 8.0, 90, marks=pytest.mark.slow),
        pytest.param(
            1, {"steps_per_execution": 3}, 9.9, 90, marks=pytest.mark.slow
        ),
        pytest.param(
            3, {"steps_per_execution": 2}, 8.0, 90, marks=pytest.mark.slow
        ),
    ],
)
def test_numbers_are_those_without_xla(
    replicas, runs, num_replicas, settings, with_xla, rows
):
    choose = choosing(with_xla)
    until = Until(choose)
    strategy = replicas(num_replicas)
    model = compiled(strategy, "sgd", "float64", **settings)
    epochs = len(fit(model, [choose, until], rows=rows).epoch)
    assert choose.uses_xla is (with_xla < 9.7)
    assert xla_choice.choice(model) is choose.uses_xla
    assert {"recording", "compiled"} == set(runs)
    assert (runs[-1] == "recording") <= choose.uses_xla
    model.stop_training = False
    fit(model, [choose], 3, rows)  # It goes on as it was chosen.
    plain = compiled(strategy, "sgd", "float64", jit_compile=False, **settings)
    fit(plain, [], epochs, rows)
    fit(plain, [], 3, rows)
    for found, own in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(found, own, atol=1e-12)
    assert model.jit_compile is False


@pytest.mark.slow
def test_numbers_on_devices_that_get_shares(like_gpus, runs):
    """As GPUs do, whose replicas communicate by TensorFlow's collectives."""
    choose = choosing(8.0)
    model = compiled(like_gpus(2), "sgd", "float64")
    epochs = len(fit(model, [choose, Until(choose)]).epoch)
    assert "compiled" in runs
    plain = compiled(like_gpus(2), "sgd", "float64", jit_compile=False)
    fit(plain, [], epochs=epochs)
    for found, own in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(found, own, atol=1e-12)


@pytest.mark.nightly
def test_an_epochs_last_batch_is_compiled_for_too(replicas, runs):
    choose = choosing(1.0)
    model = compiled(replicas(2))
    fit(model, [choose, Until(choose)])
    for _ in range(100):
        fit(model, [], epochs=2)
        if runs[-10:] == ["compiled"] * 10:
            break
    assert runs[-10:] == ["compiled"] * 10


@pytest.mark.slow
def test_other_fits_go_on_where_one_was_broken_off(replicas):
    choose, model = choosing(8.0), compiled(replicas(2))

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                raise KeyboardInterrupt

    for _ in range(300):
        with pytest.raises(KeyboardInterrupt):
            fit(model, [choose, Stop()], epochs=2)
        if choose.uses_xla is not None:
            break
    assert choose.uses_xla is True


def test_an_explicit_setting_is_not_overridden_by_a_restored_choice(replicas):
    model = compiled(replicas(2), jit_compile=False)
    xla_choice.restore(model, True)
    assert xla_choice.choice(model) is None
    model = compiled(replicas(2))
    xla_choice.restore(model, True)
    assert xla_choice.choice(model) is True


@pytest.mark.nightly
def test_what_fails_later_takes_the_choice_back(replicas, monkeypatch):
    choose = choosing(8.0)
    model = compiled(replicas(2))
    compile, made = BackgroundCompilation.compile, []

    def failing(self, pending):
        if made:
            raise TypeError("not for this shape")
        made.append(pending)
        compile(self, pending)

    monkeypatch.setattr(BackgroundCompilation, "compile", failing)
    fit(model, [choose, Until(choose, 4)])
    assert choose.uses_xla is False


@pytest.mark.slow
def test_a_new_compile_asks_again(replicas):
    choose, model = choosing(8.0), compiled(replicas(2))
    fit(model, [choose, Until(choose)])
    with model.distribute_strategy.scope():
        model.compile("adam", "mse")
    assert xla_choice.choice(model) is None
    fit(model, [], epochs=1)
    assert xla_choice.choice(model) is None


class Drawing(keras.layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))


class Swishes(keras.layers.Layer):
    def call(self, x):
        return x + keras.ops.swish(keras.ops.swish(x))


class Picking(keras.layers.Layer):
    """Adds a drawn category to each row; XLA would draw another one."""

    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(3)

    def call(self, x):
        drawn = keras.random.categorical(x, 1, seed=self.seeds)
        return x + keras.ops.cast(drawn, x.dtype)


@pytest.mark.parametrize(
    "settings, layer, reason",
    [
        ({"micro_batches": "auto"}, None, "micro_batches='auto'"),
        ({"recompute": "elementwise"}, Swishes, "computed again"),
        ({}, Drawing, "random state"),
    ],
)
def test_some_steps_stay_without_xla_and_a_line_says_why(
    caplog, settings, layer, reason
):
    names = [f"/cpu:{number}" for number in range(2)]
    with kerasmgpu.MirroredStrategy(names, **settings).scope():
        layers = [keras.Input((6,)), *([layer()] if layer else [])]
        model = keras.Sequential([*layers, keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    with caplog.at_level(logging.INFO, "absl"):
        fit(model, [callbacks.ChooseXla(2)], epochs=4)
    assert "trains on without XLA: " in caplog.text
    assert reason in caplog.text


def test_what_xla_cant_compile_ends_the_choice(replicas, caplog, monkeypatch):
    def failing(self, pending):
        raise tf.errors.UnimplementedError(None, None, "no such kernel\n  at")

    class UntilSaid(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = "XLA: " in caplog.text

    monkeypatch.setattr(BackgroundCompilation, "compile", failing)
    model = compiled(replicas(2))
    with caplog.at_level(logging.INFO, "absl"):
        fit(model, [callbacks.ChooseXla(2), UntilSaid()], epochs=40)
    assert "XLA: UnimplementedError: no such kernel." in caplog.text


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_choice(replicas, tmp_path, runs):
    strategy, choose = replicas(2), choosing(8.0)
    saves = callbacks.Checkpoint(tmp_path, every_seconds=None)
    model = compiled(strategy)
    fit(model, [choose, Until(choose), saves])
    assert runs
    runs.clear()
    resumed = compiled(strategy)
    fit(resumed, [callbacks.Checkpoint(tmp_path, every_seconds=None)], 402)
    assert xla_choice.choice(resumed) is True
    assert not runs  # It is compiled before its first step.


def test_automatic_is_on_gpus_and_where_keras_lets_it(replicas, monkeypatch):
    strategy = replicas(2)
    model = compiled(strategy)
    assert xla_choice.automatic(model) is None
    monkeypatch.setattr(
        type(strategy.extended), "worker_devices", ("/GPU:0", "/GPU:1")
    )
    assert xla_choice.automatic(model).at_once is False
    for setting in (True, False):
        model.compile("adam", "mse", jit_compile=setting)
        assert xla_choice.automatic(model) is None
    model.compile("adam", "mse", None, None, None, False, 1, "auto")
    assert xla_choice.automatic(model) is not None
    model.layers[1].supports_jit = False
    assert xla_choice.automatic(model) is None


def test_it_is_left_off_at_the_end_of_training(replicas, monkeypatch):
    """Without a request for now, it begins where a minute is left."""
    begun = []
    monkeypatch.setattr(
        BackgroundCompilation, "write", lambda self: begun.append(1)
    )
    monkeypatch.setattr(
        BackgroundCompilation, "add", lambda self: pytest.fail("stop")
    )
    model = compiled(replicas(2))
    fit(model, [], epochs=1)
    request = xla_choice.Request(2, lambda _: True, at_once=False)
    xla_choice.ask(model, request)
    fit(model, [], epochs=10)
    assert not begun
    monkeypatch.setattr(xla_trial, "_LEAST_SECONDS", 1e-3)
    with pytest.raises(BaseException, match="stop"):
        fit(model, [], epochs=10)
    assert begun
    # What ended the course doesn't end an epoch: it begins anew.
    steps = []

    class Count(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            steps.append(batch)

    fit(model, [Count()], epochs=1)
    assert steps == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_a_model_of_another_strategy_is_timed_at_once():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=False)
    fit(model, [choosing(8.0)], epochs=6)
    assert model.jit_compile is True
    assert not [t for t in threading.enumerate() if "XLA" in t.name]


def test_the_number_is_checked():
    with pytest.raises(InputError, match="executions"):
        callbacks.ChooseXla(0)


@pytest.mark.parametrize("is_first", [True, False])
def test_the_line_is_printed_by_the_first_worker(
    replicas, capsys, monkeypatch, is_first
):
    """As `docs/speed.md` shows it, whatever the level of the log."""
    monkeypatch.setattr(choose_xla, "is_first_worker", lambda: is_first)
    choose = callbacks.ChooseXla()
    choose.set_model(compiled(replicas(2)))
    choose.decide({False: [0.02819], True: [0.02397]})
    line = (
        "kerasmgpu: a step takes 28.19 ms without XLA and 23.97 ms with it; "
        "training continues with it.\n"
    )
    assert capsys.readouterr().out == line * is_first
