"""Draws of `keras.random` without a seed in `strategy.run`."""

import keras
import numpy as np
import pytest
import tensorflow as tf


def drawn(call, in_graph):
    """Three draws of each replica, and one that follows outside."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)

    def step():
        return keras.random.normal((2, 3)) + keras.random.uniform((3,))

    def one():
        return call(step)

    one = tf.function(one) if in_graph else one
    found = [np.stack([np.array(each) for each in one()]) for _ in range(3)]
    return found, np.array(keras.random.normal((3,)))


@pytest.mark.parametrize("in_graph", [False, True])
def test_they_are_one_devices_on_each_replica(replicas, in_graph):
    expected, after = drawn(lambda step: [step()], in_graph)
    strategy = replicas(3)
    with strategy.scope():
        found, followed = drawn(
            lambda step: strategy.experimental_local_results(
                strategy.run(step)
            ),
            in_graph,
        )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(other, np.repeat(one, 3, 0))
    np.testing.assert_array_equal(followed, after)
