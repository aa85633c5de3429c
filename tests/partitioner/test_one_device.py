"""Methods of distributed variables in a cross-replica context."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

UPDATE = [[1], [2]], tf.constant([5.0, 0.0])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("wrap", [tf.function, lambda function: function])
@pytest.mark.parametrize(
    "name, expected",
    [
        ("scatter_nd_update", [1.0, 5.0, 0.0]),
        ("scatter_nd_add", [1.0, 6.0, 1.0]),
        ("scatter_nd_max", [1.0, 5.0, 1.0]),
    ],
)
def test_all_copies_are_written(replicas, inside, wrap, name, expected):
    strategy = replicas(2)
    with strategy.scope():
        variable = tf.Variable([1.0, 1.0, 1.0])

    @wrap
    def update():
        return tf.identity(getattr(variable, name)(*UPDATE))

    with strategy.scope() if inside else contextlib.nullcontext():
        np.testing.assert_array_equal(update(), expected)
    for copy in variable.values:
        np.testing.assert_array_equal(copy, expected)


def test_reads_are_of_one_copy(replicas):
    with replicas(2).scope():
        variable = tf.Variable([1.0, 2.0, 3.0])
        assert variable.gather_nd([[2]]).numpy() == [3.0]
        assert variable.sparse_read([1]).numpy() == [2.0]
        assert tf.gather(variable, 1).numpy() == 2.0
