"""Convolutions and pooling of an empty share, which CPUs can't compute.

TensorFlow's oneDNN kernels give the wrong shape for 0 rows, fail, or (the
gradient of max pooling) end the process. GPUs (cuDNN) handle them.
"""

import tensorflow as tf


def call(function, inputs):
    """`function(inputs)`, also where `inputs` has no rows.

    Args:
        function: A convolution or pooling of `[rows, …]`.
        inputs: Its input; with 0 rows, one row of zeros goes in instead and
            is cut off the result, so that no kernel ever sees 0 rows.
    """
    if inputs.shape[0]:
        return function(inputs)

    def of_nothing():
        shape = tf.concat([[1], tf.shape(inputs)[1:]], 0)
        one = tf.zeros(shape, inputs.dtype)
        one.set_shape([1, *inputs.shape[1:]])
        return function(one)[:0]

    return tf.cond(
        tf.shape(inputs)[0] > 0, lambda: function(inputs), of_nothing
    )
