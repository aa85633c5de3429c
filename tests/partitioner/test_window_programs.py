"""Programs of windows over divided images do what one device does."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.step.constraints import laid_out
from tests.partitioner import window_programs


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    away, text = window_programs.difference(seed)
    assert away <= window_programs.TOLERANCE, text


def test_a_loop_over_divided_images_sends_rows_in_each_round():
    kernel = tf.constant(np.random.default_rng(0).normal(size=(3, 3, 2, 2)))

    def step(x, mark=lambda x: x):
        def body(n, x):
            return n + 1, tf.tanh(tf.nn.conv2d(x, kernel, 1, "SAME"))

        return tf.while_loop(lambda n, _: n < 3, body, (0, mark(x)))[1]

    def on_mesh(x):
        return step(x, lambda x: laid_out(x, [1]))

    x = tf.constant(np.random.default_rng(1).normal(size=(2, 7, 4, 2)))
    found = Partitioned(on_mesh, window_programs.replicas((3,), False))(x)
    np.testing.assert_allclose(found, step(x), rtol=0, atol=1e-12)
