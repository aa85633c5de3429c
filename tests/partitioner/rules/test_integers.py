"""What is known of shapes while a function is traced."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.function import Partitioned
from tests.partitioner.rules.planned import ROWS, replicas


@pytest.mark.parametrize(
    "function, value",
    [
        (lambda x: tf.shape(x), "(rows of input 0, 3, 4)"),
        (lambda x: tf.size(x), "12*rows of input 0"),
        (lambda x: tf.rank(x), "3"),
        (lambda x: tf.shape(x)[0] * 2 + 1, "1 + 2*rows of input 0"),
        (lambda x: tf.shape(x)[-2:], "(3, 4)"),
        (lambda x: tf.size(x) // 4, "3*rows of input 0"),
        (lambda x: tf.shape(x)[0] // 2, "None"),
        (lambda x: tf.reduce_prod(tf.shape(x)[1:]), "12"),
        (lambda x: tf.stack([tf.shape(x)[0], 12]), "(rows of input 0, 12)"),
        (lambda x: tf.range(2, 8, 3), "(2, 5)"),
        (lambda x: tf.shape(tf.reshape(x, [-1, 6])), "(2*rows of input 0, 6)"),
        (lambda x: tf.shape(tf.concat([x, x], 0)), "(2*rows of input 0, 3, 4)"),
        (lambda x: tf.shape(tf.transpose(x))[2], "rows of input 0"),
    ],
)
def test_values(function, value):
    specification = (tf.TensorSpec([ROWS, 3, 4]),)
    program = Partitioned(function, replicas(2)).program(specification)
    (tensor,) = program.trace.graph.outputs
    assert str(tensor.value) == value
