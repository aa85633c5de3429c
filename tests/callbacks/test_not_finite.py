"""NotFinite names the step, the replica and the place of the first NaN."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import kerasmgpu
from kerasmgpu.callbacks import NotFinite, ThroughputLogger, kept_batches
from kerasmgpu.errors import InputError
from tests.devices import device_names
from tests.partitioner.test_collectives import needed

ROWS, BATCH = 40, 8


class Logarithm(layers.Layer):
    """NaN for rows whose first column is negative."""

    def call(self, x):
        return x + 0 * tf.math.log(x[:, :1])


class Root(layers.Layer):
    """Finite, with an infinite derivative at 0."""

    def call(self, x):
        return tf.sqrt(tf.abs(x[:, :1])) + 0 * x


def data():
    random = np.random.default_rng(0)
    return random.uniform(1, 2, (ROWS, 3)).astype("float32")


def model_of(strategy, *middle, optimizer="sgd", **compile_options):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), *middle, layers.Dense(1)])
        model.compile(optimizer, "mse", **compile_options)
    return model


def message(model, x, y=None, gradients=False, callbacks=(), **fit_options):
    y = x[:, :1] if y is None else y
    with pytest.raises(InputError) as caught:
        model.fit(
            x,
            y,
            batch_size=BATCH,
            shuffle=False,
            verbose=0,
            callbacks=[NotFinite(gradients), *callbacks],
            **fit_options,
        )
    return str(caught.value)


@pytest.mark.parametrize(
    "num_replicas, steps_per_execution", [(1, 3), (2, 1), (3, 3)]
)
def test_the_layer_the_row_and_the_replica_are_named(
    replicas, num_replicas, steps_per_execution
):
    x = data()
    x[3 * BATCH + 6, 0] = -1
    model = model_of(
        replicas(num_replicas),
        Logarithm(name="seventh"),
        steps_per_execution=steps_per_execution,
    )
    said = message(model, x, callbacks=[ThroughputLogger()])
    replica = num_replicas - 1
    assert f"epoch 1, step 4 (step 4 of this fit), replica {replica}." in said
    assert "Layer 'seventh' (Logarithm) is the first whose output has" in said
    assert "a NaN, of finite inputs" in said
    where = f", on replica {replica})" if replica else ")"
    assert f"(row 6 of the batch{where}" in said


def test_weights_stay_those_from_before_the_step(replicas):
    x = data()

    def weights(num_rows):
        model = model_of(replicas(2), Logarithm(), optimizer="adam")
        if num_rows == ROWS:
            message(model, x)
        else:
            model.fit(
                x[:num_rows], x[:num_rows, :1], BATCH, verbose=0, shuffle=False
            )
        return model.get_weights()

    x[3 * BATCH + 6, 0] = -1
    for one, other in zip(weights(ROWS), weights(3 * BATCH)):
        np.testing.assert_array_equal(one, other)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_a_batch_is_kept_before_its_step_fails(
    like_gpus, monkeypatch, steps_per_execution
):
    """Each replica has its share by itself, and one fails at once."""
    stage = kept_batches._stage

    def late(area, values):
        if tf.executing_eagerly():
            return stage(area, values)
        pause = tf.numpy_function(lambda: time.sleep(0.1), [], [])
        with tf.control_dependencies([pause]):
            return stage(area, values)

    monkeypatch.setattr(kept_batches, "_stage", late)
    x = data()
    x[3 * BATCH + 6, 0] = -1
    model = model_of(
        like_gpus(2), Logarithm(), steps_per_execution=steps_per_execution
    )
    assert "row 6 of the batch, on replica 1)" in message(model, x)


class FixedRate(keras.optimizers.Optimizer):
    """Uses neither the learning rate nor the gradient of the step before."""

    def build(self, variables):
        super().build(variables)
        self.slots = [
            self.add_variable_from_reference(variable, name="slot")
            for variable in variables
        ]

    def update_step(self, gradient, variable, learning_rate):
        slot = self.slots[self._get_variable_index(variable)]
        self.assign(slot, gradient)
        self.assign_sub(variable, 0.1 * slot)


@pytest.mark.parametrize(
    "optimizer, settings, count",
    [
        (keras.optimizers.Adam, {}, 12),
        (FixedRate, {"learning_rate": 0.1}, 8),
        (keras.optimizers.AdamW, {"gradient_accumulation_steps": 2}, 1),
    ],
)
def test_updates_wait_for_the_checks_of_all_replicas(
    replicas, optimizer, settings, count
):
    """One replica may compute an update that others assign."""
    functions = []

    class Written(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            functions.append(self.model.train_function.written.library[-1])

    x = data()
    model = model_of(replicas(2), Logarithm())
    with model.distribute_strategy.scope():
        model.compile(optimizer(name="checked", **settings), "mse")
    callbacks = [NotFinite(), Written()]
    model.fit(x, x[:, :1], BATCH, verbose=0, callbacks=callbacks)
    nodes = {node.name: node for node in functions[0].node_def}
    updates = [
        name
        for name in nodes
        if "checked/" in name and nodes[name].op in ("AssignVariableOp", "If")
    ]
    assert len(updates) == count, sorted(nodes)
    for name in updates:
        waits_for = needed(nodes, name)
        for one in [n for n in waits_for if "all_reduce" in n]:
            # It ends when all replicas have begun theirs.
            for other in nodes:
                if nodes[other].input[1:4] == nodes[one].input[1:4]:
                    waits_for |= needed(nodes, other)
        assert "replica_0/CheckNumerics" in waits_for
        assert "replica_1/CheckNumerics" in waits_for


@pytest.mark.parametrize(
    "settings",
    [
        "shares on devices of their own",
        "no strategy",
        {"micro_batches": 2, "shard": "weights", "min_shard_bytes": 0},
        {"micro_batches": "auto"},
    ],
)
def test_under_other_strategies(like_gpus, settings):
    if settings == "no strategy":
        strategy = tf.distribute.get_strategy()
    elif isinstance(settings, str):
        strategy = like_gpus(2)
    else:
        strategy = kerasmgpu.MirroredStrategy(device_names(2), **settings)
    x = data()
    x[3 * BATCH + 6, 0] = -1
    said = message(model_of(strategy, Logarithm(name="seventh")), x)
    replica = strategy.num_replicas_in_sync - 1
    assert f"step 4 (step 4 of this fit), replica {replica}." in said
    assert "Layer 'seventh'" in said and "row 6 of the batch" in said


@pytest.mark.parametrize("jit_compile", [False, True])
def test_values_of_the_batch_are_named(replicas, jit_compile):
    x = data()
    y = x[:, :1].copy()
    x[2 * BATCH + 3, 2] = np.inf
    said = message(model_of(replicas(2), jit_compile=jit_compile), x, y)
    assert "step 3" in said and "replica 0" in said
    assert said.endswith("The batch itself has an infinity: x, row 3, column 2")


def test_the_loss_function_is_named(replicas):
    x = data()
    y = x[:, :1].copy()
    y[BATCH + 1] = -1
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
        model.compile("sgd", lambda y, p: tf.math.log(y) + 0 * p)
    said = message(model, x, y)
    assert "step 2" in said and "the loss function gives a NaN" in said


@pytest.mark.parametrize("gradients, step", [(False, 3), (True, 2)])
def test_a_gradient_is_named(replicas, gradients, step):
    x = data()
    x[BATCH + 1, :] = 0
    first = layers.Dense(3, use_bias=False, name="first")
    model = model_of(replicas(2), first, Root())
    said = message(model, x, gradients=gradients)
    assert f"step {step} (" in said
    if gradients:
        assert "the gradient of 'first/kernel' is the first" in said
    else:
        assert "has made variables of first/kernel not finite" in said


def test_overflows_of_scaled_losses_are_none(replicas):
    with replicas(2).scope():
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.01), initial_scale=1e38
        )
    x = 1e4 * data()
    model = model_of(replicas(2), optimizer=optimizer)
    model.fit(
        x, x[:, :1], BATCH, verbose=0, callbacks=[NotFinite(gradients=True)]
    )
    assert float(optimizer.dynamic_scale) < 1e38  # There were overflows.
    x[BATCH + 1, 1] = np.nan
    assert "x, row 1, column 1" in message(model, x)


def test_the_last_update_is_looked_at():
    x = data()[:BATCH]
    x[1, :] = 0
    first = layers.Dense(3, use_bias=False, name="first")
    model = model_of(tf.distribute.get_strategy(), first, Root())
    said = message(model, x, np.ones([BATCH, 1]))
    assert "has left weights that are not finite: first/kernel." in said


@pytest.mark.slow
@pytest.mark.parametrize("gradients", [False, True])
def test_replicas_send_nothing_more(replicas, gradients):
    strategy, x, sent = replicas(2), data(), []

    class Sent(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            written = self.model.train_function.written
            sent.append(len(list(written.lowered.communication())))

    for callbacks in ([], [NotFinite(gradients)]):
        model = model_of(strategy, layers.Dense(4), optimizer="adam")
        model.fit(x, x[:, :1], verbose=0, callbacks=[*callbacks, Sent()])
    assert sent[0] == sent[1] > 0


def test_nested_and_weighted_batches(replicas):
    with replicas(2).scope():
        dense = keras.Input((3,), name="numbers")
        words = keras.Input((2,), name="words")
        joined = layers.Concatenate()([dense, words])
        model = keras.Model([dense, words], layers.Dense(1)(joined))
        model.compile("sgd", "mse")
    x, weights = data(), np.ones([ROWS], "float32")
    weights[BATCH + 5] = np.nan
    rows = {"numbers": x, "words": x[:, :2]}, x[:, :1], weights
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(BATCH)
    with pytest.raises(InputError, match="a NaN: sample_weight, row 5$"):
        model.fit(dataset, verbose=0, callbacks=[NotFinite()])


def test_a_step_without_compute_loss(replicas):
    """Its gradients are checked instead, those of all of its optimizers."""

    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.own.apply_gradients(zip(gradients, self.trainable_weights))
            return {"own": loss}

    x = data()
    with replicas(2).scope():
        given = keras.Input((3,))
        model = Own(given, layers.Dense(1)(given))
        model.compile()
        model.own = keras.optimizers.SGD(0.1)
    x[2 * BATCH + 1, 2] = np.nan
    said = message(model, x)
    assert "step 3 (" in said and "x, row 1, column 2" in said


def test_several_fits_and_one_without(replicas):
    x = data()
    model = model_of(replicas(2), Logarithm(name="seventh"))
    watch = NotFinite()
    for _ in range(2):
        model.fit(x, x[:, :1], BATCH, verbose=0, callbacks=[watch])
    assert "compute_loss" not in vars(model)
    assert "train_step" not in vars(model)
    bad = x.copy()
    bad[2, 0] = -1
    history = model.fit(bad, x[:, :1], BATCH, verbose=0)
    assert np.isnan(history.history["loss"][0])


def test_validation_is_not_checked(replicas):
    x = data()
    model = model_of(replicas(2), Logarithm())
    history = model.fit(
        x,
        x[:, :1],
        BATCH,
        verbose=0,
        validation_data=(-x, x[:, :1]),
        callbacks=[NotFinite()],
    )
    assert np.isnan(history.history["val_loss"][0])


def test_a_layer_without_a_path_in_a_model_of_named_inputs(replicas):
    """A row whose tokens are all masked has the mean 0 / 0."""
    with replicas(2).scope():
        tokens = keras.Input((5,), dtype="int32", name="tokens")
        numbers = keras.Input((3,), name="numbers")
        x = layers.Embedding(9, 4, mask_zero=True)(tokens)
        x = layers.GlobalAveragePooling1D(name="mean")(x)
        x = layers.Dense(1)(layers.Concatenate()([x, numbers]))
        model = keras.Model({"tokens": tokens, "numbers": numbers}, x)
        model.compile("sgd", "mse")
    ids = np.ones([ROWS, 5], "int32")
    ids[BATCH + 2] = 0
    with pytest.raises(InputError, match="step 2 .*Layer 'mean' .*row 2 of"):
        model.fit(
            {"tokens": ids, "numbers": data()},
            data()[:, :1],
            batch_size=BATCH,
            shuffle=False,
            verbose=0,
            callbacks=[NotFinite()],
        )


def test_a_warning_where_xla_drops_the_checks(replicas, caplog):
    x = data()
    plain = tf.distribute.get_strategy()
    for strategy, count in ((replicas(2), 0), (plain, 1)):
        model = model_of(strategy, jit_compile=True)
        model.fit(x, x[:, :1], BATCH, verbose=0, callbacks=[NotFinite()])
        assert caplog.text.count("XLA drops the checks of a step") == count
