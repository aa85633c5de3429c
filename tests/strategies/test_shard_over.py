"""Variables are divided in groups of replicas, and gradients summed over all."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras import iterators
from kerasmgpu.errors import InputError
from kerasmgpu.memory import counting, memory_advice
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.step_memory import step_peak
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES
from tests.devices import device_names
from tests.strategies.sharded import mirrored

ROWS, UNITS, VOCABULARY = 13, 10, 23


class Table(keras.layers.Layer):
    """A table that isn't of an `Embedding`, and so is divided in groups."""

    def build(self, shape):
        self.table = self.add_weight((VOCABULARY, UNITS), name="table")

    def call(self, x):
        return keras.ops.take(self.table, x, axis=0)


def compiled():
    """A model with both kinds of table, whose optimizer needs a norm."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, UNITS)(inputs) + Table()(inputs)
    x = keras.layers.Dense(11, "tanh", kernel_regularizer="l2")(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, keras.layers.Dense(3)(x))
    model.compile(keras.optimizers.AdamW(0.01, global_clipnorm=0.1), "mse")
    return model


def data():
    numbers = np.random.default_rng(0)
    x = numbers.integers(0, VOCABULARY, (ROWS, 4))
    return x.astype("int32"), numbers.normal(size=(ROWS, 3))


@pytest.fixture
def float64():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def trained(model):
    history = model.fit(*data(), batch_size=8, epochs=2, verbose=0)
    return [*history.history["loss"], *model.get_weights()]


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "num_replicas, over, micro_batches", [(4, 2, 1), (6, 3, 1), (4, 2, 2)]
)
def test_groups_end_as_one_device(num_replicas, over, micro_batches, float64):
    with mirrored(
        num_replicas, "weights", 0, micro_batches, shard_over=over
    ).scope():
        model = compiled()
    for one, many in zip(trained(compiled()), trained(model), strict=True):
        np.testing.assert_allclose(many, one, rtol=0, atol=1e-12)
    for weight in model.trainable_weights + model.optimizer.variables[2:]:
        parts = [part.numpy() for part in weight.value.parts]
        of_all = weight.value.shard_axes == (0, 0)
        assert of_all == ("embedding" in weight.path)
        for part, other in zip(parts, parts[over:]):
            assert of_all or np.array_equal(part, other)


class Words(keras.Model):
    """Sums the vectors of each row's words."""

    def __init__(self):
        super().__init__()
        self.table = self.add_weight((VOCABULARY, 4), name="table")
        self.outer = keras.layers.Dense(1)

    def call(self, words):
        def vectors(flat):
            return tf.nn.embedding_lookup(self.table.value, flat)

        found = tf.ragged.map_flat_values(vectors, words)
        return self.outer(tf.reduce_sum(found, 1))


def test_parts_whose_number_of_rows_the_batch_decides(float64):
    rows = tf.ragged.range(tf.constant([3, 0, 5, 1, 7]))
    batches = tf.data.Dataset.from_tensor_slices((rows, np.eye(5)[:, :1]))

    def end(strategy):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            model = Words()
            model.compile("sgd", "mse")
        model.fit(batches.batch(3), verbose=0)
        return model.get_weights()

    one = end(mirrored(1, None))
    many = end(mirrored(4, "weights", 0, 2, shard_over=2))
    for value, same in zip(many, one, strict=True):
        np.testing.assert_allclose(value, same, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_optimizers_state_alone(float64):
    with mirrored(4, "optimizer", shard_over=2).scope():
        model = compiled()
    for one, many in zip(trained(compiled()), trained(model), strict=True):
        np.testing.assert_allclose(many, one, rtol=0, atol=1e-12)
    axes = [getattr(v.value, "shard_axes", ()) for v in model.weights]
    assert set(axes) == {()}
    slots = model.optimizer.variables[2:]
    assert {len(slot.value.shard_axes) for slot in slots} == {2}


def dense(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64)])
        model.compile("adam", "mse")
    return model


def test_bytes_between_groups_are_those_of_parts():
    """A ring of the 2 groups: each replica sends its quarter of the gradient,
    where without groups all replicas gather and scatter across nodes."""
    model = dense(mirrored(8, "weights", shard_over=4))
    batch = np.zeros((4096, 64), "float32"), np.zeros((4096, 64), "float32")
    report = kerasmgpu.layout_report(model, batch)
    parameters = 64 * 65
    assert report.held == pytest.approx(3 * 4 * parameters / 4, abs=100)
    assert report.along["the groups"] == 4 * parameters / 4
    # Reduce-scatter of gradients, all-gather of weights.
    assert report.along["a group"] == 2 * 4 * parameters * 3 / 4
    assert report.along["all replicas"] < 100  # The loss.
    assert "along the groups" in str(report)


def test_memory_is_that_of_a_group():
    strategy = mirrored(8, "weights", MIN_SHARD_BYTES, shard_over=4)
    model = dense(strategy)
    setting = memory_advice.setting_of(model)
    assert setting.shard_over == 4 and setting.groups == 2
    x = np.zeros((64, 64), "float32")
    feed = iterators.feed_of(model, (x, x, None), 64)
    step = memory_advice.traced(model, feed.batch_specification, 64)
    setting = dataclasses.replace(setting, device_type="GPU")
    (row,) = counting.settings(step, setting, [1])
    held = kerasmgpu.layout_report(model, (x, x)).held
    assert row["shard_over"] == 4
    assert row["weights"] + row["slots"] == pytest.approx(held, abs=100)
    peak = step_peak(step, Setting(8, shard="weights", shard_over=4))
    assert row["gathered"] == peak.gathered
    assert row["gradients"] == peak.gradients > 0


def test_a_mesh_of_groups():
    strategy = kerasmgpu.strategy(mesh=(2, 3), shard="weights")
    assert strategy.num_replicas_in_sync == 6
    assert (
        strategy.settings.shard_over == 3
        and strategy.replicas.mesh.axes == (2, 3)
    )


def test_variables_are_read_and_written_as_one():
    value = np.arange(10.0).reshape(5, 2)
    with mirrored(4, lambda variable: 0, shard_over=2).scope():
        variable = tf.Variable(value)
    assert [len(part.numpy()) for part in variable.parts] == [3, 2, 3, 2]
    np.testing.assert_array_equal(variable.numpy(), value)
    variable.assign(value + 1)
    variable.scatter_nd_update([[4]], [[7.0, 7.0]])
    assert [float(part[-1, 0]) for part in variable.parts] == [5, 7, 5, 7]
    assert len(variable.parts_to_save()) == 2


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"shard_over": 3}, "must divide the number of replicas"),
        ({"shard_over": 1}, "shard_over must be an integer of at least 2"),
        ({"shard_over": "node"}, 'a number of replicas, or "worker"'),
        ({"shard_over": 2, "shard": None}, "without shard"),
    ],
)
def test_wrong_groups(arguments, message):
    with pytest.raises(InputError, match=message):
        kerasmgpu.MirroredStrategy(
            device_names(4), **{"shard": "weights", **arguments}
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {"mesh": (2, 2, 2)},
        {"mesh": (2, 2), "num_replicas": 4},
        {"mesh": (4,)},
        {"mesh": (4, 1)},
        {"mesh": (0, 2)},
        {"mesh": 4},
    ],
)
def test_wrong_meshes_of_groups(arguments):
    with pytest.raises(InputError, match="mesh (has two|is given|must be)"):
        kerasmgpu.strategy(shard="weights", **arguments)
