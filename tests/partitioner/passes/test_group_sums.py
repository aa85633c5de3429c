"""All parts that are summed at the same point are one reduction."""

import tensorflow as tf

from tests.partitioner.passes.conftest import lines


def test_sums_of_the_end_are_one_and_maxima_another(dumped):
    def step(x):
        return tf.reduce_sum(x), tf.reduce_max(x), tf.reduce_sum(x * x)

    text = dumped(step, [None, 2])
    assert len(lines(text["lower_reshards"], "all_reduce")) == 3
    assert lines(text["group_sums"], "all_reduce") == [
        "Sum:0 R, Sum_1:0 R = all_reduce.sum(Sum:0 P(sum), Sum_1:0 P(sum))"
        "  1 * 4 + 1 * 4 bytes",
        "Max:0 R = all_reduce.max(Max:0 P(max))  1 * 4 bytes",
    ]


def test_a_sum_that_needs_another_one_is_of_the_next_level(dumped):
    def step(x):
        mean = tf.reduce_mean(x, 0)
        return mean, tf.reduce_mean((x - mean) ** 2, 0)

    first, second = lines(dumped(step, [None, 2])["group_sums"], "all_reduce")
    assert first.startswith("Mean:0 R =")
    assert second.startswith("Mean_1:0 R =")
