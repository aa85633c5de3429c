"""Which variables are sharded, along which axis, and what that saves."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.errors import InputError
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES
from kerasmgpu.strategies.sharding import NewVariable
from tests.devices import device_name, device_names
from tests.strategies.sharded import axes_of, mirrored, pretended_worker


def axis_of(shape, shard="weights", num_replicas=3, **keywords):
    """The axis on which a `tf.Variable` of a shape is sharded."""
    with mirrored(num_replicas, shard, **keywords).scope():
        return axis_of_variable(tf.Variable(tf.zeros(shape)))


def axis_of_variable(variable):
    return getattr(variable, "shard_axes", (None,))[0]


@pytest.mark.parametrize(
    "shape, axis",
    [
        ([6, 7], 0),  # Of the axes that divide evenly,
        ([7, 6], 1),
        ([6, 9], 1),  # the longest one,
        ([9, 9], 0),  # and of equal ones the first.
        ([7, 8], 1),  # Where none divides evenly, the longest one.
        ([8, 8], 0),
        ([2, 5], 1),  # Each replica gets at least one element.
        ([2, 2], None),
        ([3], 0),
        ([2], None),
        ([], None),
        ([0, 4], 1),
    ],
)
def test_the_longest_axis_that_divides_evenly(shape, axis):
    assert axis_of(shape) == axis


def test_uneven_parts_differ_by_one():
    value = np.arange(14.0).reshape(7, 2)
    with mirrored(3, lambda variable: 0).scope():
        variable = tf.Variable(value)
    parts = [part.numpy() for part in variable.parts]
    assert [len(part) for part in parts] == [3, 2, 2]
    np.testing.assert_array_equal(np.concatenate(parts), value)
    assert [part.device[-5:] for part in variable.parts] == [
        device_name(0),
        device_name(1),
        device_name(2),
    ]


@pytest.mark.parametrize(
    "dtype, axis",
    [(tf.int32, None), (tf.int64, None), (tf.bool, None), (tf.int8, 0)],
)
def test_integers_are_sharded_where_quantize_makes_them(dtype, axis):
    with mirrored(2, "weights").scope():
        variable = tf.Variable(tf.cast([0] * 8, dtype))
    assert axis_of_variable(variable) == axis


@pytest.mark.parametrize(
    "elements, is_sharded", [(MIN_SHARD_BYTES // 4, True), (64, False)]
)
def test_small_variables_stay_whole(elements, is_sharded):
    with kerasmgpu.MirroredStrategy(device_names(2), shard="weights").scope():
        variable = tf.Variable(tf.zeros([elements]))
    assert (axis_of_variable(variable) is not None) == is_sharded


def test_bytes_of_the_smallest_sharded_variable():
    assert axis_of([8], min_shard_bytes=32) == 0
    assert axis_of([8], min_shard_bytes=33) is None


def test_one_replica_holds_all():
    assert axis_of([8], num_replicas=1) is None


def test_metrics_stay_sums_of_the_replicas():
    with mirrored(2, "weights").scope():
        variable = tf.Variable(
            tf.zeros([8]),
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    assert axis_of_variable(variable) is None


def built(strategy):
    """A small model with an embedding, and its built optimizer."""
    with strategy.scope():
        inputs = keras.Input((3,), dtype="int32")
        x = keras.layers.Embedding(5, 8, name="table")(inputs)
        x = keras.layers.Dense(6, name="dense")(x)
        x = keras.layers.BatchNormalization(name="norm")(x)
        model = keras.Model(inputs, x)
        model.compile(keras.optimizers.Adam(name="adam"), "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def test_weights_and_slots():
    axes = axes_of(built(mirrored(2, "weights")))
    assert axes == {
        "table/embeddings": 0,
        "dense/kernel": 0,
        "dense/bias": 0,
        "norm/gamma": 0,
        "norm/beta": 0,
        "norm/moving_mean": 0,
        "norm/moving_variance": 0,
        "adam/iteration": None,
        "adam/learning_rate": None,
        **{
            f"adam/{name}_{slot}": 0
            for name in (
                "table_embeddings",
                "dense_kernel",
                "dense_bias",
                "norm_gamma",
                "norm_beta",
            )
            for slot in ("momentum", "velocity")
        },
    }


def test_only_slots_for_the_optimizer():
    axes = axes_of(built(mirrored(2, "optimizer")))
    sharded = {path for path, axis in axes.items() if axis is not None}
    slots = {path for path in axes if path.endswith(("momentum", "velocity"))}
    assert sharded == slots and len(slots) == 10


def test_only_tables_and_their_slots_for_embeddings():
    axes = axes_of(built(mirrored(2, "embeddings")))
    assert {path for path, axis in axes.items() if axis is not None} == {
        "table/embeddings",
        "adam/table_embeddings_momentum",
        "adam/table_embeddings_velocity",
    }


def test_tables_are_sharded_by_rows():
    """Although their columns divide evenly."""
    axes = axes_of(built(mirrored(4, "weights")))
    assert axes["table/embeddings"] == 0
    assert axes["adam/table_embeddings_velocity"] == 0


def test_adapters_of_a_table():
    """Rows of the first one are looked up; the second one is no table."""
    model = built(mirrored(2, "embeddings"))
    model.get_layer("table").enable_lora(4)  # Outside of the scope.
    axes = axes_of(model)
    assert axes["table/lora_embeddings_a"] == 0
    assert axes["table/lora_embeddings_b"] is None


def test_a_table_with_few_rows():
    """Its columns for "weights"; for "embeddings" it stays whole."""
    assert axes_of(built(mirrored(8, "weights")))["table/embeddings"] == 1
    assert axes_of(built(mirrored(8, "embeddings")))["table/embeddings"] is None


def optimizers():
    adam = keras.optimizers.Adam
    return {
        "ema": adam(use_ema=True),
        "gradient accumulation": adam(gradient_accumulation_steps=2),
        "loss scale": keras.optimizers.LossScaleOptimizer(adam()),
        "amsgrad": adam(amsgrad=True),
    }


@pytest.mark.parametrize("name", optimizers())
@pytest.mark.parametrize("shard", ["weights", "optimizer"])
def test_slots_lie_beside_their_weight(name, shard):
    with mirrored(3, shard).scope():
        model = keras.Sequential([keras.Input((7,)), keras.layers.Dense(9)])
        optimizer = optimizers()[name]
        optimizer.build(model.trainable_variables)
    slots = [v for v in optimizer.variables if tuple(v.shape) == (7, 9)]
    assert len(slots) >= 2
    assert {v.value.shard_axes for v in slots} == {(1,)}


def test_slots_of_a_weight_with_a_chosen_axis():
    """They follow it, and not their own longest axis."""

    def shard(variable):
        return 0 if variable.kind == "weight" else True

    with mirrored(2, shard).scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8)])
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    slots = [v for v in optimizer.variables if tuple(v.shape) == (3, 8)]
    assert [v.value.shard_axes for v in slots] == [(0,), (0,)]


def test_frozen_weights_are_sharded_and_have_no_slots():
    with mirrored(2, "weights").scope():
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(4, use_bias=False, trainable=False),
                keras.layers.Dense(2, use_bias=False),
            ]
        )
        optimizer = keras.optimizers.SGD(momentum=0.5)
        optimizer.build(model.trainable_variables)
    assert [w.value.shard_axes for w in model.weights] == [(0,), (0,)]
    assert [tuple(v.shape) for v in optimizer.variables[2:]] == [(4, 2)]


def test_a_tied_weight_is_sharded_once():
    with mirrored(2, "weights").scope():
        table = keras.layers.Embedding(6, 4)
        inputs = keras.Input((3,), dtype="int32")
        outputs = table(inputs) @ keras.ops.transpose(table.embeddings)
        model = keras.Model(inputs, outputs)
    assert [tuple(w.shape) for w in model.weights] == [(6, 4)]
    assert table.embeddings.value.shard_axes == (0,)


def test_a_layer_of_ones_own_in_a_job():
    """Keras calls it for the shape of its outputs; no weight is read."""

    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(3)

        def call(self, x):
            return self.inner(x) + 1

    with pretended_worker(0, 2), mirrored(1, "weights").scope():
        inputs = keras.Input((4,))
        model = keras.Model(inputs, Block()(inputs))
    assert model.output_shape == (None, 3)
    assert [len(w.value.parts) for w in model.weights] == [1, 1]
    assert model.weights[0].value.parts[0].shape == (2, 3)


# A user's function ------------------------------------------------------------


def test_what_a_function_sees():
    seen = []
    built(mirrored(2, lambda variable: seen.append(variable)))
    by_path = {variable.path: variable for variable in seen}
    assert by_path["table/embeddings"] == NewVariable(
        "table/embeddings", (5, 8), "float32", "weight", True
    )
    assert by_path["dense/kernel"].kind == "weight"
    assert by_path["norm/moving_mean"].kind == "other"
    slot = by_path["adam/dense_kernel_momentum"]
    assert (slot.kind, slot.is_embedding) == ("slot", False)


@pytest.mark.parametrize(
    "chosen, axis",
    [(True, 1), (False, None), (None, None), (0, 0), (1, 1), (-1, 1), (-2, 0)],
)
def test_what_a_function_returns(chosen, axis):
    assert axis_of([4, 6], lambda variable: chosen) == axis


@pytest.mark.parametrize(
    "chosen, message",
    [
        (2, r"an axis of the variable\. Received: 2 for .* of shape \[2, 6\]"),
        (-3, "an axis of the variable"),
        ("rows", "True, False, None or an axis"),
        (1.0, "True, False, None or an axis"),
    ],
)
def test_a_bad_axis_is_refused(chosen, message):
    with pytest.raises(InputError, match=message):
        axis_of([2, 6], lambda variable: chosen)


@pytest.mark.parametrize(
    "keywords, message",
    [
        (
            {"shard": "weight"},
            "shard must be one of none, .*Received: shard='weight'",
        ),
        ({"shard": True}, "Received: shard=True"),
        ({"shard": ["weights"]}, "Received: shard="),
        ({"shard": "weights", "min_shard_bytes": -1}, "min_shard_bytes"),
        ({"shard": "weights", "min_shard_bytes": "1 MB"}, "min_shard_bytes"),
    ],
)
def test_a_bad_setting_is_refused(keywords, message):
    with pytest.raises(InputError, match=message):
        kerasmgpu.MirroredStrategy(device_names(1), **keywords)


# Bytes ------------------------------------------------------------------------


def gpt():
    """A block of GPT-2, wider than tall, and its tied table."""
    width, tokens = 256, keras.Input((16,), dtype="int32")
    table = keras.layers.Embedding(2000, width)
    x = table(tokens)
    for _ in range(2):
        y = keras.layers.LayerNormalization()(x)
        x += keras.layers.MultiHeadAttention(8, width // 8)(y, y)
        y = keras.layers.LayerNormalization()(x)
        y = keras.layers.Dense(4 * width, activation="gelu")(y)
        x += keras.layers.Dense(width)(y)
    return keras.Model(tokens, x @ keras.ops.transpose(table.embeddings))


def resnet():
    return keras.applications.ResNet50(weights=None)


def dlrm():
    """Tables of categories in front of a small perceptron."""
    sizes = 50_000, 5_003, 1_000
    inputs = [keras.Input((), dtype="int32") for _ in sizes]
    rows = [
        keras.layers.Embedding(size, 16)(one)
        for size, one in zip(sizes, inputs)
    ]
    x = keras.layers.Dense(64, "relu")(keras.ops.concatenate(rows, -1))
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def bytes_of(value, replica):
    """Bytes that one replica holds of a variable."""
    parts = getattr(value, "parts", None) or value.values
    return parts[replica].shape.num_elements() * value.dtype.size


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize(
    "num_replicas, make",
    [(4, gpt), (8, dlrm), (2, gpt), (4, resnet), (2, dlrm), (4, dlrm)],
)
def test_bytes_of_each_replica(num_replicas, make):
    """Weights and both moments of Adam, 12 bytes per parameter, over N; for
    "optimizer" 4 + 8 / N (ZeRO, Rajbhandari et al., 2020, section 5)."""
    for shard, whole, divided in (("weights", 0, 12), ("optimizer", 4, 8)):
        strategy = kerasmgpu.MirroredStrategy(
            device_names(num_replicas), shard=shard
        )
        with strategy.scope():
            model = make()
            optimizer = keras.optimizers.Adam()
            optimizer.build(model.trainable_variables)
        count = sum(np.prod(w.shape) for w in model.trainable_weights)
        held = [
            sum(
                bytes_of(v.value, replica)
                for v in model.trainable_variables + optimizer.variables
            )
            for replica in range(num_replicas)
        ]
        expected = count * (whole + divided / num_replicas)
        assert max(held) == pytest.approx(expected, rel=0.05)
        assert min(held) == pytest.approx(expected, rel=0.05)
