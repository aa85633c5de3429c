"""Rules for convolutions, pools and images."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import WithHalo
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.step.constraints import laid_out
from tests.partitioner import window_programs
from tests.partitioner.rules.planned import (
    ROWS,
    Planned,
    kinds_of,
    replicas,
    same,
)

IMAGES = [ROWS, 4, 4, 2]


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: tf.nn.conv2d(x, tf.ones([2, 2, 2, 3]), 1, "SAME"),
        lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"),
        lambda x: tf.nn.avg_pool2d(x, 2, 1, "SAME"),
        lambda x: tf.image.resize(x, [3, 5]),
    ],
)
def test_images_keep_their_rows(operation):
    plan = Planned(operation, IMAGES)
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


def test_gradients_of_a_convolution():
    kernel = tf.ones([2, 2, 2, 3])

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            loss = tf.reduce_sum(tf.nn.conv2d(x, kernel, 1, "VALID") ** 2)
        return tape.gradient(loss, [x, kernel])

    assert kinds_of(gradients, IMAGES) == ["rows on 0", "partial sum"]


@pytest.mark.parametrize("static", [False, True])
def test_kernels_that_take_no_empty_shares(static):
    def step(x):
        kernel = tf.ones([2, 2, 2, 3])
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            made = tf.nn.conv2d(x, kernel, 1, "SAME")
            made = tf.nn.local_response_normalization(made)
            made = tf.nn.max_pool2d(made, 2, 2, "SAME")
            loss = tf.reduce_sum(made * made)
        return loss, *tape.gradient(loss, [x, kernel])

    same(step, [1, 4, 4, 2], num_replicas=3, static=static)


def of_unknown_rank(x):
    """What a tensor list in a loop gives, say."""
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=None)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(x),
            filter=tf.ones([1, 1, 2, 2]),
            out_backprop=of_unknown_rank(x),
            strides=[1, 1, 1, 1],
            padding="SAME",
        ),
        lambda x: tf.raw_ops.Conv2DBackpropFilter(
            input=x,
            filter_sizes=[1, 1, 2, 2],
            out_backprop=of_unknown_rank(x),
            strides=[1, 1, 1, 1],
            padding="SAME",
        ),
        lambda x: tf.raw_ops.MaxPoolGrad(
            orig_input=x,
            orig_output=tf.nn.max_pool2d(x, 2, 1, "SAME"),
            grad=of_unknown_rank(x),
            ksize=[1, 2, 2, 1],
            strides=[1, 1, 1, 1],
            padding="SAME",
        ),
    ],
)
def test_gradients_of_unknown_rank(operation):
    same(operation, [5, 4, 4, 2], num_replicas=3, static=False)


def test_gradients_of_boxes_of_all_images():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            rows = tf.shape(x)[0]
            scale = tf.sigmoid(x[:, 0, 0, :1])
            boxes = tf.tile([[0.1, 0.1, 0.8, 0.9]], [rows, 1]) * scale
            crops = tf.image.crop_and_resize(
                x, boxes, tf.range(rows)[::-1], [3, 3]
            )
            loss = tf.reduce_sum(crops * crops)
        return crops, tape.gradient(loss, x)

    for rows in (5, 2):
        same(step, [rows, 4, 4, 2], num_replicas=3)


def test_the_contrast_of_one_image_is_of_all_its_rows():
    same(lambda x: (tf.image.adjust_contrast(x, 2.0),), [5, 4, 2])


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirrored_borders_of_empty_shares(mode):
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            padded = tf.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode)
            loss = tf.reduce_sum(padded * padded)
        return padded, tape.gradient(loss, x)

    same(step, [2, 4, 4, 2], num_replicas=3)


def test_images_of_a_computed_size():
    """Keras's augmentation makes images as large as those it is given."""

    def turned(x):
        made = tf.raw_ops.ImageProjectiveTransformV3(
            images=x,
            transforms=[[0.0, 1, 0, 1, 0, 0, 0, 0]],
            output_shape=tf.shape(x)[1:3],
            fill_value=0.0,
            interpolation="NEAREST",
        )
        return (made,)

    program = Partitioned(turned, replicas(2)).program(
        (tf.TensorSpec([None, 4, 6, 2]),)
    )
    (made,) = program.trace.graph.outputs
    assert made.static[1:3] == (None, None)
    assert made.shape[1:] == (4, 6, 2)
    same(turned, [5, 4, 6, 2])


def test_gradients_of_a_dilation():
    kernel = tf.reshape(tf.range(8.0) % 3, [2, 2, 2])
    ones = [1, 1, 1, 1]

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            made = tf.nn.dilation2d(x, kernel, ones, "SAME", "NHWC", ones)
            loss = tf.reduce_sum(made * made)
        of_images, of_kernel = tape.gradient(loss, [x, kernel])
        return tf.reshape(of_images, [-1, tf.shape(x)[1] * 8]), of_kernel

    plan = Planned(gradients, [ROWS, None, 4, 2])
    assert (plan.kinds, plan.gathered) == (["rows on 0", "partial sum"], [])
    for rows in (5, 1):
        same(gradients, [rows, 4, 4, 2], num_replicas=3)


def test_gradients_of_a_dilation_of_a_sum():
    """They are sums of what the replicas' parts of its gradient give."""

    def gradients(x):
        given = dict(
            input=tf.reshape(tf.range(32.0) % 5, [1, 4, 4, 2]),
            filter=tf.reshape(tf.range(8.0) % 3, [2, 2, 2]),
            out_backprop=tf.reduce_sum(x, 0, keepdims=True),
            strides=[1, 1, 1, 1],
            rates=[1, 1, 1, 1],
            padding="SAME",
        )
        return (
            tf.raw_ops.Dilation2DBackpropInput(**given),
            tf.raw_ops.Dilation2DBackpropFilter(**given),
        )

    plan = Planned(gradients, IMAGES)
    assert (plan.kinds, plan.gathered) == (["partial sum"] * 2, [])
    same(gradients, [5, 4, 4, 2], num_replicas=3)


def divided(operation, *shapes):
    """The plan of an operation on images whose rows a mesh of 2 divides."""

    def marked(x, *others):
        return operation(laid_out(x, [1]), *others)

    replicas = window_programs.replicas((2,), False)
    specifications = tuple(tf.TensorSpec(shape) for shape in shapes)
    program = Partitioned(marked, replicas).program(specifications)
    return program, program.plans[0]


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: tf.nn.conv2d(x, tf.ones([3, 3, 2, 2]), 2, "SAME"),
        lambda x: tf.nn.avg_pool2d(x, 3, 1, "SAME"),
        lambda x: tf.nn.max_pool2d(x, 2, 1, "VALID"),
        lambda x: tf.pad(x, [[0, 0], [1, 2], [0, 0], [0, 0]]),
        lambda x: x[:, 1:8:2],
        lambda x: tf.slice(x, [0, 1, 0, 0], [-1, 7, 4, 2]),
        lambda x: tf.space_to_batch(x, [3], [[1, 1]]),
    ],
)
def test_windows_over_divided_rows_take_a_halo(operation):
    program, plans = divided(operation, [3, 10, 4, 2])
    (made,) = program.trace.graph.outputs
    want, gives = plans.nodes[made.node].wants[0], plans.kinds[made]
    assert isinstance(want, WithHalo)
    assert (gives.axis, gives.size) == (1, made.shape[1])


def test_windows_of_one_pixel_take_none():
    program, plans = divided(
        lambda x: tf.nn.conv2d(x, tf.ones([1, 1, 2, 2]), 1, "SAME"),
        [3, 10, 4, 2],
    )
    (made,) = program.trace.graph.outputs
    assert plans.nodes[made.node].wants[0] == plans.kinds[made]


def test_a_halo_costs_the_rows_that_are_sent():
    program, plans = divided(
        lambda x: tf.nn.conv2d(x, tf.ones([5, 3, 2, 2]), 1, "SAME"),
        [3, 10, 4, 2],
    )
    (made,) = program.trace.graph.outputs
    plan = plans.nodes[made.node]
    given = [plans.kinds[tensor] for tensor in made.node.inputs]
    sent = CostModel().sent(made.node, given, plan.wants, plan.gives)
    assert sent == 2 * 2 * 3 * 4 * 2 * 4  # Two rows to each of two replicas.


def test_a_slice_of_a_divided_weight_is_no_window():
    program, plans = divided(lambda x: x[:, 1:], [4, 6])
    (made,) = program.trace.graph.outputs
    assert not plans.nodes[made.node].rule
