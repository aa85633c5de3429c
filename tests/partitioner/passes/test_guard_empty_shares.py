"""Kernels that fail for no rows are guarded where a share may be empty."""

import pytest
import tensorflow as tf

from tests.partitioner.passes.conftest import lines
from tests.partitioner.rules import planned


@pytest.mark.parametrize(
    "rows, jit_compile, is_guarded",
    [(None, False, True), (2, False, False), (None, True, False)],
)
def test_a_convolution(dumped, rows, jit_compile, is_guarded):
    text = dumped(
        lambda x: tf.nn.conv2d(x, tf.ones([1, 1, 1, 1]), 1, "SAME"),
        [rows, 4, 4, 1],
        replicas=planned.replicas(2, "CPU"),
        jit_compile=jit_compile,
    )
    (line,) = lines(text["guard_empty_shares"], "= Conv2D(")
    assert ("guarded against no rows" in line) == is_guarded


def test_what_gpus_need_rows_for(dumped):
    """For no rows, depthwise gradients are what was in memory before.

    And cuDNN's normalisation of local responses ends the process.
    """

    def gradients(x):
        kernels = tf.ones([2, 2, 1, 1]), tf.ones([2, 2, 1, 3])
        with tf.GradientTape() as tape:
            tape.watch(kernels)
            thin = tf.nn.depthwise_conv2d(x, kernels[0], [1, 1, 1, 1], "SAME")
            made = tf.nn.conv2d(thin, kernels[1], 1, "SAME")
            made = tf.nn.local_response_normalization(made)
        return tape.gradient(made, kernels)

    on_gpus = planned.replicas(2, "GPU")
    text = dumped(gradients, [None, 4, 4, 1], replicas=on_gpus)
    found = {
        type: "guarded against no rows" in line
        for type in (
            "DepthwiseConv2dNativeBackpropFilter",
            "Conv2DBackpropFilter",
            "LRN",
            "LRNGrad",
        )
        for line in lines(text["guard_empty_shares"], f"= {type}(")
    }
    assert found == {
        "DepthwiseConv2dNativeBackpropFilter": True,
        "Conv2DBackpropFilter": False,
        "LRN": True,
        "LRNGrad": True,
    }
