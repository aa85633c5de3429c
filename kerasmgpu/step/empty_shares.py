"""Convolutions of an empty share, which TensorFlow refuses on CPUs.

oneDNN's convolutions fail on 0 rows. GPUs (cuDNN) handle them.
"""

import tensorflow as tf


def convolve(function, inputs):
    """`function(inputs)`, also where `inputs` has no rows.

    Args:
        function: A convolution of `[rows, …]`.
        inputs: Its input; with 0 rows, one row of zeros is convolved instead
            and cut off, which gives the shape without calling on 0 rows.
    """
    if inputs.shape[0]:
        return function(inputs)
    rows = tf.shape(inputs)[0]

    def of_nothing():
        shape = tf.concat([[1], tf.shape(inputs)[1:]], 0)
        one = tf.zeros(shape, inputs.dtype)
        one.set_shape([1, *inputs.shape[1:]])
        return function(one)[:0]

    return tf.cond(rows > 0, lambda: function(inputs), of_nothing)
