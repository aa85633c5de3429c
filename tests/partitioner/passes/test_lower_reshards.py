"""Reshards become communication, slices and recomputation."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from tests.partitioner.passes.conftest import lines
from tests.strategies.sharded import mirrored, pretended_devices

SIZE = 32


def test_rows_are_sliced_and_gathered(dumped):
    text = dumped(lambda x: tf.math.top_k(tf.transpose(x), 1)[0], [None, 2])
    assert (
        text["lower_reshards"]
        == """\
given Placeholder:0 R
transpose/perm:0 R = Const([1, 0])
Placeholder:0 S(0) = Slice(Placeholder:0 R)
transpose:0 S(1) = Transpose(Placeholder:0 S(0), transpose/perm:0 R)
TopKV2/k:0 R = Const(1)
transpose:0 R = all_gather(transpose:0 S(1))  2*rows of input 0 * 4 bytes
TopKV2:0 R, TopKV2:1 R = TopKV2(transpose:0 R, TopKV2/k:0 R)
return TopKV2:0 R
"""
    )


@pytest.mark.parametrize(
    "reduction, by",
    [
        (tf.reduce_sum, "sum"),
        (tf.reduce_max, "max"),
        (tf.reduce_min, "min"),
    ],
)
def test_parts_are_reduced(dumped, reduction, by):
    text = dumped(reduction, [None, 2])["lower_reshards"]
    (line,) = lines(text, "all_reduce")
    assert f"all_reduce.{by}(" in line and line.endswith("1 * 4 bytes")


def test_a_mask_is_drawn_for_own_rows(dumped):
    def mask(x):
        drawn = tf.random.stateless_uniform(tf.shape(x), [1, 2])
        return tf.reduce_sum(x * tf.cast(drawn > 0.5, x.dtype))

    text = dumped(mask, [None, 4])["lower_reshards"]
    (draw,) = lines(text, "= StatelessRandomUniformV2(")
    assert "UniformV2:0 S(0) = " in draw and "Shape:0 shape of S(0)" in draw
    assert not lines(text, "all_gather")


def test_no_reshard_is_left(dumped):
    text = dumped(lambda x: tf.sort(x, axis=0) + tf.reduce_mean(x), [None, 2])
    assert lines(text["insert_reshards"], "Reshard")
    assert not lines(text["lower_reshards"], "Reshard")


def packed(sharding):
    """Bytes of two numbers of four bits each, and scales, divided over two."""
    rows = np.arange(SIZE * SIZE, dtype="uint8").reshape(SIZE, SIZE)
    with sharding.scope() if sharding else contextlib.nullcontext():
        kernel = tf.Variable(rows.view("int8"))
        return kernel, tf.Variable(2.0 ** (tf.range(SIZE * 1.0) % 3))


def scaled(kernel, scale):
    """As Keras does it for the backward pass of `quantize("int8")`."""
    return tf.transpose(tf.cast(kernel, tf.float32) / scale)


def unpacked(kernel, scale):
    """Of half as many bytes as the numbers that are packed in them."""
    low, high = tf.bitwise.bitwise_and(kernel, 15), kernel // 16
    numbers = tf.reshape(tf.stack([low, high], 1), [-1, SIZE])
    return scaled(numbers, scale)


@pytest.mark.parametrize("restored", [scaled, unpacked])
def test_what_variables_hold_is_gathered_if_it_has_fewer_bytes(
    dumped, sharding, restored
):
    kernel, scale = packed(sharding)

    def product(x):
        return tf.reduce_sum(x @ tf.transpose(restored(kernel, scale)))

    width = restored(*packed(None)).shape[1]
    text = dumped(product, [512, width], strategy=sharding)["lower_reshards"]
    of_scale, of_kernel = lines(text, "= all_gather(")
    assert of_scale.endswith(f"  {SIZE} * 4 bytes")
    assert of_kernel.endswith(f"  {SIZE * SIZE} * 1 bytes")
    assert not lines(text, "= Cast(") and not lines(text, "= RealDiv(")


def test_a_weight_is_cast_before_it_is_gathered_if_that_has_fewer_bytes(
    dumped, sharding
):
    with sharding.scope():
        kernel = tf.Variable(tf.ones([SIZE, SIZE]))

    def product(x):
        half = tf.cast(x, tf.float16) @ tf.cast(kernel, tf.float16)
        return tf.reduce_sum(half)

    text = dumped(product, [512, SIZE], strategy=sharding)["lower_reshards"]
    (line,) = lines(text, "= all_gather(")
    assert line.endswith(f"  {SIZE * SIZE} * 2 bytes")


@pytest.mark.parametrize("restored", [scaled, unpacked])
@pytest.mark.parametrize(
    "num_replicas, shares_memory, settings",
    [
        (3, True, {}),
        (3, False, {"micro_batches": 2}),
        (4, True, {"shard_over": 2}),
    ],
)
def test_restored_weights_are_those_of_one_device(
    restored, num_replicas, shares_memory, settings
):
    """Their gradient's, too: sums of small integers are exact."""
    width = restored(*packed(None)).shape[1]
    x = np.arange(96.0 * SIZE, dtype="float32").reshape(96, SIZE) % 5

    def step(kernel, scale, x):
        hidden = x @ restored(kernel, scale)
        (gradient,) = tf.gradients(hidden, x)
        return hidden, gradient

    expected = tf.function(step)(*packed(None), x)
    with pretended_devices(shares_memory):
        strategy = mirrored(num_replicas, "weights", **settings)
        weights = packed(strategy)
        function = strategy.partitioned(lambda x: step(*weights, x), name="f")
        found = function(tf.constant(x))
    written = next(iter(function.programs)).written().lowered
    turns = [
        one.in_turns
        for one in written.instructions
        if getattr(one, "restoring", None) is not None
    ]
    assert turns and all(one == ("micro_batches" in settings) for one in turns)
    assert found[0].shape == (96, width)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_of_a_batch_are_not_taken_for_a_weight():
    """Of a table divided by columns: rows travel, and not the table."""
    strategy = mirrored(2, "weights")
    with strategy.scope():
        table = tf.Variable(tf.ones([23, 8 * SIZE]))

    def rows(ids):
        return tf.gather(tf.sqrt(table + 1.0), ids)

    function = strategy.partitioned(rows, name="rows")
    program = function.program((tf.TensorSpec([None], tf.int32),))
    (found,) = program.written()([tf.constant([3, 1, 2])])
    np.testing.assert_array_equal(found, np.full((3, 8 * SIZE), 2**0.5, "f"))
    restored = [
        one
        for one in program.written().lowered.instructions
        if getattr(one, "restoring", None) is not None
    ]
    assert not restored
