"""Parts of variables that are assigned where no replica runs."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf


@pytest.mark.parametrize("inside", [False, True])
def test_a_part_is_assigned_to_all_copies(replicas, inside):
    strategy = replicas(3)
    with strategy.scope():
        variable = tf.Variable(np.arange(6.0))
    with strategy.scope() if inside else contextlib.nullcontext():
        variable[1:3].assign([7.0, 8.0])
        np.testing.assert_array_equal(variable[2:], [8.0, 3.0, 4.0, 5.0])
    for copy in variable.values:
        np.testing.assert_array_equal(copy, [0.0, 7.0, 8.0, 3.0, 4.0, 5.0])
