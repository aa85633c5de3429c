"""Softmaxes and cross-entropies along a divided axis are written out."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from tests.partitioner.rules.planned import ROWS, Planned, same


def softmax(x):
    """Of all rows, by which they are weighed."""
    return tf.linalg.matvec(tf.nn.softmax(tf.transpose(x)), x[:, 0])


def log_softmax(x):
    scores = tf.transpose(x)
    return tf.reduce_sum(tf.nn.log_softmax(scores) * scores, 1)


def sparse(x):
    """Row 0 is the class of column 0, row 2 that of column 1 …."""
    labels = 2 * tf.range(x.shape[1])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels, tf.transpose(x)
    )


def dense(x):
    scores = tf.transpose(x)
    labels = tf.stop_gradient(scores / 9)
    return tf.nn.softmax_cross_entropy_with_logits(labels, scores)


def step_of(loss):
    """Returns a step of a loss and of its gradient, summed over the rows."""

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = loss(x)
        return made, tf.reduce_sum(tape.gradient(made, x) * x, 0)

    return step


LOSSES = pytest.mark.parametrize("loss", [softmax, log_softmax, sparse, dense])


@LOSSES
def test_nothing_is_gathered(loss):
    made = Planned(step_of(loss), [ROWS, 3])
    assert not made.gathered
    assert made.kinds == ["partial sum"] * 2


@LOSSES
def test_replicas_compute_what_one_device_does(loss):
    """Of seven rows, over three replicas, of a size that the batch tells."""
    same(step_of(loss), [7, 3], num_replicas=3)


def test_an_axis_that_is_needed_whole_is_gathered_once():
    """Its statistics would come on top of the result."""
    made = Planned(lambda x: tf.nn.softmax(tf.transpose(x))[:, :2], [ROWS, 3])
    assert made.gathered == ["Softmax", "StridedSlice"]


def test_one_that_follows_another_is_written_out_with_it():
    """By itself the first would be gathered for the second."""

    def step(x):
        labels = 2 * tf.range(x.shape[1])
        logs = tf.nn.log_softmax(tf.transpose(x))
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logs)

    assert not Planned(step, [ROWS, 3]).gathered


def on_replicas(function, value):
    """What three replicas make of rows."""
    step = kerasmgpu.partition(function, virtual_devices=3)
    return step(tf.constant(value)).numpy()


@pytest.mark.parametrize("value", [1e4, -np.inf], ids=["large", "masked"])
def test_scores_may_be_large_or_masked(value):
    """A column of masked scores only is NaN, as on one device."""
    x = np.zeros((7, 3), "float32")
    x[:, 0] = x[3:, 1] = x[5, 2] = value
    expected = softmax(tf.constant(x) + 0).numpy()
    np.testing.assert_allclose(on_replicas(softmax, x), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_as_exact_as_on_one_device(dtype):
    """Differences from weights in 64 bits, of 300 rows."""
    x = np.random.default_rng(0).normal(size=(300, 3))
    x = tf.cast(3 * x, dtype)

    def of_first(x):
        return tf.nn.softmax(tf.transpose(x)) @ x

    step = kerasmgpu.partition(of_first, virtual_devices=3)
    exact = of_first(tf.cast(x, "float64")).numpy()
    one, three = (
        np.abs(np.array(tf.cast(made, "float64")) - exact).max()
        for made in (of_first(x), step(x))
    )
    assert three <= 2 * one


def test_a_label_that_is_no_class_gives_nan():
    """As on GPUs. TensorFlow's kernel of CPUs fails."""

    def loss(x):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.constant([-1, 6, 7]), tf.transpose(x)
        )

    made = on_replicas(loss, np.zeros((7, 3), "float32"))
    np.testing.assert_allclose(made, [np.nan, np.log(7), np.nan], rtol=1e-6)
