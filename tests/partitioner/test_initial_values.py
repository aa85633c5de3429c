"""Parts that are drawn alone have the bits of TensorFlow's whole draw."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime import initial_values
from kerasmgpu.partitioner.runtime.initial_values import Drawn, Filled

SEED = (7, -3)
SHAPES = [(7, 13), (3, 5, 9), (301,), (1, 400), (5, 1, 33)]


def whole(distribution, shape, dtype):
    """What TensorFlow draws at once, and the `Drawn` of the same values."""
    draw = getattr(tf.random, f"stateless_{distribution}")
    if distribution == "uniform":
        low, high = tf.cast(-0.3, dtype), tf.cast(0.4, dtype)
        scale, offset = high - low, low
        values = draw(shape, SEED, low, high, dtype)
    else:
        scale, offset = 0.7, 0.1
        values = draw(shape, SEED, mean=offset, stddev=scale, dtype=dtype)
    return values.numpy(), Drawn(
        distribution, tf.constant(SEED), shape, dtype, scale, offset
    )


def boxes(shape):
    """Parts of every kind: whole axes, the middle of an axis, nothing."""
    cuts = [((0, size), (size // 3, size - 1)) for size in shape]
    for ends in itertools.product(*cuts):
        yield tuple(itertools.starmap(slice, ends))
    yield tuple(slice(size, size) for size in shape)


@pytest.mark.parametrize("distribution", initial_values.DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("most_bytes", [128, 4 << 20])
def test_parts_are_those_of_the_whole_draw(
    distribution, dtype, most_bytes, monkeypatch
):
    monkeypatch.setattr(initial_values, "_MOST_BYTES", most_bytes)
    for shape in SHAPES:
        values, drawn = whole(distribution, shape, dtype)
        for box in boxes(shape):
            np.testing.assert_array_equal(drawn.part(box), values[box])


def test_no_more_is_drawn_at_a_time_than_a_piece(monkeypatch):
    monkeypatch.setattr(initial_values, "_MOST_BYTES", 4096)
    drawn, draw = [], tf.raw_ops.StatelessRandomNormalV2

    def noting(**arguments):
        drawn.append(math.prod(arguments["shape"]) * 4)
        return draw(**arguments)

    monkeypatch.setitem(initial_values.DISTRIBUTIONS, "normal", (noting, False))
    value = Drawn("normal", tf.constant(SEED), (100, 100), "float32", 1.0, 0.0)
    value.part((slice(50, 75), slice(0, 100)))  # Rows: they alone are drawn.
    assert max(drawn) <= 4096 + 16 and sum(drawn) <= 25 * 400 + 16 * len(drawn)
    drawn.clear()
    value.part((slice(0, 100), slice(50, 75)))  # Columns: of whole rows.
    assert max(drawn) <= 4096 + 16


@pytest.mark.parametrize("low", [2**32 - 2, 2**64 - 2])
def test_counters_carry_into_their_upper_words(low, monkeypatch):
    counter = tf.constant([low, 5], tf.uint64)
    key = tf.constant([3], tf.uint64)
    monkeypatch.setattr(
        tf.raw_ops,
        "StatelessRandomGetKeyCounter",
        lambda seed: (key, counter),
    )
    values = tf.raw_ops.StatelessRandomUniformV2(
        shape=[40], key=key, counter=counter, alg=1, dtype=tf.float32
    ).numpy()
    drawn = Drawn("uniform", tf.constant(SEED), (40,), "float32", 1.0, 0.0)
    np.testing.assert_array_equal(drawn.part((slice(17, 40),)), values[17:])


def test_a_state_determines_all_elements():
    value = Filled(tf.constant(3, tf.int8), (4, 5), tf.int8)
    other = value.of(tf.constant(2, tf.int8))
    np.testing.assert_array_equal(other.whole(), np.full((4, 5), 2, "int8"))
    np.testing.assert_array_equal(
        value.part((slice(1, 3), slice(0, 5))), np.full((2, 5), 3, "int8")
    )
