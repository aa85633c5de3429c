"""Functions that a traced function calls."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from tests.devices import device_names


def gradients(function, images, filters):
    with tf.GradientTape() as tape:
        tape.watch((images, filters))
        loss = tf.reduce_sum(function(images, filters) ** 2)
    return loss, tape.gradient(loss, (images, filters))


@tf.function(jit_compile=True)
def convolution(images, filters):
    return tf.nn.conv2d(images, filters, 1, "SAME")


def in_a_branch(images, filters):
    return tf.cond(
        images[0, 0, 0, 0] < 9.0,
        lambda: convolution(images, filters),
        lambda: images,
    )


def in_a_loop(images, filters):
    def body(step, images):
        return step + 1, convolution(images, filters)

    return tf.while_loop(lambda step, _: step < 2, body, (0, images))[1]


def in_a_loop_of_all(images, filters):
    """Each step needs the mean of all replicas' rows."""

    def body(step, images):
        images = convolution(images, filters)
        return step + 1, images - tf.reduce_mean(images, 0)

    return tf.while_loop(lambda step, _: step < 2, body, (0, images))[1]


@pytest.mark.nightly(but=4)
@pytest.mark.parametrize("rows", [7, 1])
@pytest.mark.parametrize(
    "call", [convolution, in_a_branch, in_a_loop, in_a_loop_of_all]
)
def test_what_is_compiled_on_one_device_is_compiled_on_replicas(call, rows):
    """TensorFlow's CPU kernels lack gradients of grouped convolutions."""

    def step(images, filters):
        return gradients(call, images, filters)

    images = tf.random.stateless_normal([rows, 4, 4, 6], seed=(1, 2))
    filters = tf.random.stateless_normal([3, 3, 1, 6], seed=(3, 4))
    expected = tf.nest.flatten(tf.function(step)(images, filters))
    devices = device_names(3)
    found = kerasmgpu.partition(step, devices=devices)(images, filters)
    for one, many in zip(expected, tf.nest.flatten(found)):
        np.testing.assert_allclose(many, one, rtol=1e-4, atol=1e-4)


def test_a_function_called_by_its_name():
    """As `tf.nn.ctc_loss` calls its own."""

    def step(logits, labels):
        lengths = tf.ones_like(labels[:, 0])
        return tf.nn.ctc_loss(
            labels,
            logits,
            2 * lengths,
            5 * lengths,
            logits_time_major=False,
            blank_index=0,
        )

    logits = tf.random.stateless_normal([5, 5, 4], seed=(1, 2))
    labels = tf.constant([[1, 2], [3, 1], [2, 2], [1, 3], [2, 1]])
    expected = tf.function(step)(logits, labels)
    found = kerasmgpu.partition(step, devices=device_names(2))(logits, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
