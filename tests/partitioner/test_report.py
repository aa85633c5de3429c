"""The report on how a program was partitioned."""

import tensorflow as tf

from kerasmgpu.partitioner.runtime import report
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules.planned import ROWS, replicas

WEIGHTS = tf.ones([4, 3])


def products(function, *specifications):
    program = Partitioned(function, replicas(2)).program(specifications)
    return [node.type for node in report.whole_products(program)]


def test_products_of_rows_are_shared():
    rows = tf.TensorSpec([ROWS, 4])
    assert products(lambda x: x @ WEIGHTS, rows) == []
    # Products of weights alone are computed on every replica.
    assert products(lambda x: x @ (WEIGHTS @ tf.transpose(WEIGHTS)), rows) == []


def test_products_of_something_else_are_named():
    def longest(x):
        return tf.boolean_mask(x, tf.reduce_sum(x, 1) > 0) @ WEIGHTS

    assert products(longest, tf.TensorSpec([ROWS, 4])) == ["MatMul"]


def test_a_line_of_the_log_says_so(caplog):
    def masked(x):
        with tf.name_scope("tower"):
            return tf.boolean_mask(x, tf.reduce_sum(x, 1) > 0) @ WEIGHTS

    partitioned = Partitioned(masked, replicas(2))
    with caplog.at_level("INFO", logger="absl"):
        partitioned(tf.ones([5, 4]))
    (line,) = [x for x in caplog.messages if "products" in x]
    assert "masked has 1 products of whole batches" in line
