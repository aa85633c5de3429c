"""Rules for draws: replicas draw their own rows, to the bit."""

import pytest
import tensorflow as tf

from tests.partitioner.rules.planned import ROWS, Planned, same


def test_each_replica_draws_its_rows():
    def add_noise(x):
        return x + tf.random.stateless_normal(tf.shape(x), [1, 2])

    plan = Planned(add_noise, [ROWS, 4])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "draw", [tf.random.stateless_normal, tf.random.stateless_uniform]
)
def test_rows_are_those_of_one_device(draw, dtype):
    """Rows of three elements begin anywhere in a block of the generator."""

    def bits(x):
        drawn = draw(tf.shape(x), [1, 2], dtype=dtype)
        of_size = {4: tf.int32, 8: tf.int64}
        integers = tf.bitcast(drawn, of_size[drawn.dtype.size])
        return (integers + tf.cast(x, integers.dtype) * 0,)

    same(bits, [7, 3], num_replicas=3)


def test_draws_without_a_rule_are_whole():
    def add_noise(x):
        return (x + tf.random.stateless_truncated_normal(tf.shape(x), [1, 2]),)

    same(add_noise, [5, 3], num_replicas=3)
