"""How operations are planned by their axes."""

import tensorflow as tf

from tests.partitioner.rules.planned import ROWS, Planned, kinds_of, same


def test_an_operation_without_a_rule_gets_all_rows():
    plan = Planned(lambda x: tf.unique(x).y, [ROWS, "int32"])
    assert plan.gathered == ["Unique"]


def test_a_part_that_would_grow_is_summed_before():
    """A sum of four numbers is less than sixteen products."""
    kernel = tf.ones([1, 4])

    def outer(x):
        return tf.matmul(tf.reduce_sum(x, 0)[:, None], kernel)

    assert Planned(outer, [ROWS, 4]).kinds == ["replicated"]


def test_a_product_of_two_parts_is_no_part():
    def product(x):
        total = tf.reduce_sum(x, 0)
        return total * total

    assert Planned(product, [ROWS, 4]).kinds == ["replicated"]


def test_a_sum_of_two_parts_is_a_part():
    def total(x):
        return tf.reduce_sum(x, 0) + tf.reduce_sum(x * x, 0)

    assert Planned(total, [ROWS, 4]).kinds == ["partial sum"]


def test_what_has_fewer_bytes_is_gathered():
    """Of two shards whose rows are on two axes of a product."""

    def outer(x, y):
        return x[:, None] * y[None]

    assert kinds_of(outer, [ROWS, 1], [ROWS, 8]) == ["rows on 1"]
    assert kinds_of(outer, [ROWS, 8], [ROWS, 1]) == ["rows on 0"]


def test_replicas_make_their_own_rows():
    def ones(x):
        return tf.ones([tf.shape(x)[0], 3])

    assert Planned(ones, [ROWS]).kinds == ["rows on 0"]


def test_one_row_is_broadcast_to_a_fixed_size():
    """Which of three rows, or one, it is, is known when the step runs."""
    for rows in (1, 3):
        same(lambda x: (x * tf.ones([3, 2]),), [rows, 2])


def test_a_batch_of_one_row_is_broadcast_by_what_data_decide_on():
    table = tf.reshape(tf.range(20.0), [10, 2])

    def step(x):
        return (x + tf.boolean_mask(table, tf.range(10) < 5),)

    for rows in (5, 1):
        same(step, [rows, 2], num_replicas=3)
