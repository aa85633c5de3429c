"""Rules for sums, means and extremes."""

import pytest
import tensorflow as tf

from tests.partitioner.rules.planned import ROWS, Planned, kinds_of, same


@pytest.mark.parametrize(
    "reduce, kind",
    [
        (tf.reduce_sum, "partial sum"),
        (tf.reduce_mean, "partial sum"),
        (tf.reduce_max, "partial max"),
        (tf.reduce_min, "partial min"),
        (tf.reduce_prod, "replicated"),
    ],
)
def test_over_rows(reduce, kind):
    assert kinds_of(lambda x: reduce(x, 0), [ROWS, 4]) == [kind]


def test_of_truth_values():
    def both(x):
        return tf.reduce_all(x), tf.reduce_any(x)

    assert kinds_of(both, [ROWS, "bool"]) == ["partial all", "partial any"]


@pytest.mark.parametrize("keepdims, kind", [(False, 0), (True, 1)])
def test_over_another_axis_rows_move(keepdims, kind):
    def mean(x):
        return tf.reduce_mean(tf.transpose(x, [1, 0, 2]), 0, keepdims=keepdims)

    assert kinds_of(mean, [ROWS, 3, 4]) == [f"rows on {kind}"]


def test_a_mean_of_whole_numbers_is_not_a_sum_of_parts():
    assert kinds_of(lambda x: tf.reduce_mean(x, 0), [ROWS, 4, "int32"]) == [
        "replicated"
    ]


def test_a_mean_of_whole_numbers_is_rounded_once():
    def step(x):
        return (tf.reduce_mean(tf.reduce_sum(x, 0)),)

    same(step, [3, 2, "int32"])
    same(step, [8, 5, "int32"], num_replicas=3)


def test_a_mean_counts_rows_and_not_shares():
    """Shares of two rows and of one: 2/3 and 1/3 of the mean."""
    same(lambda x: (tf.reduce_mean(x), tf.reduce_mean(x, 0)), [3, 2])


def test_no_rows_add_nothing_to_a_mean():
    same(lambda x: (tf.reduce_mean(x),), [1, 2], num_replicas=8)


def test_the_axis_that_is_looked_along_is_whole():
    def along_rows(x):
        return tf.cumsum(x, 0), tf.argmax(x, 0)

    plan = Planned(along_rows, [ROWS, 4])
    assert plan.gathered == ["Cumsum", "ArgMax"]


def test_other_axes_keep_rows():
    def along_units(x):
        return tf.cumsum(x, 1), tf.argmax(x, -1), tf.nn.softmax(x)

    plan = Planned(along_units, [ROWS, 4])
    assert plan.kinds == ["rows on 0"] * 3
    assert plan.gathered == []


def test_sorting_rows_needs_all_rows():
    plan = Planned(lambda x: tf.sort(x, 0), [ROWS, 4])
    assert plan.gathered == ["TopKV2"]
    assert Planned(lambda x: tf.sort(x, 1), [ROWS, 4]).gathered == []


def test_losses_of_rows():
    def loss(x, labels):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)

    plan = Planned(loss, [ROWS, 4], [ROWS, "int32"])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])
