"""Grouping of partial sums into all-reduces."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.lowering.packing import packs_of_shape
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.step.graph import Tensor
from tests.devices import device_names
from tests.partitioner.rules import planned


class Noted(Replicas):
    """Replicas that record the groups of all-reduced tensors."""

    def __init__(self):
        super().__init__(planned.replicas(2).mesh)
        self.groups = []

    def reduce(self, build, tensors, parts, by):
        self.groups.append((by, [tensor.static for tensor in tensors]))
        return super().reduce(build, tensors, parts, by)


def groups(function, shape):
    """Returns the all-reduce groups of a function of rows."""
    replicas = Noted()
    specification = tf.TensorSpec(shape, tf.float32)
    Partitioned(function, replicas).program((specification,)).written()
    return replicas.groups


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16])
def test_gradients_are_summed_at_the_end_of_the_backward_pass(dtype):
    """16-bit gradients are cast there, which must not force the all-reduce."""
    first, second = tf.Variable(tf.ones([4, 3])), tf.Variable(tf.ones([3, 2]))

    def step(x):
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.cast(x, dtype) @ tf.cast(first, dtype))
            made = tf.tanh(hidden @ tf.cast(second, dtype))
            loss = tf.reduce_sum(tf.cast(made, tf.float32))
        for gradient, variable in zip(
            tape.gradient(loss, [first, second]), [first, second]
        ):
            variable.assign_sub(tf.sign(gradient))

    ((by, shapes),) = groups(step, [None, 4])
    assert by == "sum"
    assert sorted(shapes) == [(3, 2), (4, 3)]


def test_what_two_multiples_are_made_of_is_summed_once():
    """Lion adds a gradient to its momentum in two proportions."""
    weight, momentum = tf.Variable(tf.ones([4])), tf.Variable(tf.ones([4]))

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * weight)
        gradient = tape.gradient(loss, weight)
        weight.assign_sub(tf.sign(momentum * 0.9 + gradient * 0.1))
        momentum.assign(momentum * 0.99 + gradient * 0.01)

    assert groups(step, [None, 4]) == [("sum", [(4,)])]


def test_a_multiple_of_a_multiple_is_one_too():
    sums = [tf.Variable(tf.ones([4])) for _ in range(3)]

    def step(x):
        whole = tf.reduce_sum(x, 0)
        for variable, factor in zip(sums, (-whole, -whole * 2.0 / 3.0, whole)):
            variable.assign(tf.sign(factor))

    assert groups(step, [None, 4]) == [("sum", [(4,)])]


def test_a_gradient_is_summed_in_front_of_its_momentum():
    """Later operations on the all-reduced value run once."""
    weight, momentum = tf.Variable(tf.ones([4])), tf.Variable(tf.ones([4]))

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(x * weight))
        (gradient,) = tape.gradient(loss, [weight])
        momentum.assign(0.9 * momentum - 0.1 * gradient)
        weight.assign_add(momentum)

    program = Partitioned(step, planned.replicas(2)).program(
        (tf.TensorSpec([None, 4], tf.float32),)
    )
    nodes = program.written().library[-1].node_def
    ops = [n.op for n in nodes if n.attr["T"].type == tf.float32]
    assert ops.count("AddN") == ops.count("Sub") == 1
    assert "ZerosLike" not in ops


def test_a_function_says_once_per_device_that_it_is_done():

    def step(x):
        for number, variable in enumerate(variables):
            variable.assign(variable * number + tf.reduce_sum(x, 0))

    strategy = kerasmgpu.MirroredStrategy(device_names(2))
    with strategy.scope():
        variables = [tf.Variable(tf.ones([2])) for _ in range(3)]
        partitioned = strategy.partitioned(step)
        written = partitioned.program(
            (tf.TensorSpec([None, 2], tf.float32),)
        ).written()
    function = written.library[-1]
    done = {node.name: node for node in function.node_def}
    ends = [done[name] for name in function.signature.control_output]
    assert [node.op for node in ends] == ["NoOp"] * 2
    assert len({node.device for node in ends}) == 2
    assert all(len(node.input) >= 3 for node in ends)


def test_a_sum_that_others_wait_for_goes_by_itself():
    def step(x):
        x = tf.tanh(x - tf.reduce_mean(x, 0))
        return tf.exp(tf.reduce_sum(x))

    assert groups(step, [None, 4]) == [("sum", [(4,)]), ("sum", [()])]


def test_sums_and_extremes_go_apart():
    def step(x):
        return tf.exp(tf.reduce_sum(x, 0) * tf.reduce_max(x, 0))

    assert sorted(groups(step, [None, 4])) == [("max", [(4,)]), ("sum", [(4,)])]


def test_small_ones_of_a_shape_are_summed_as_one():
    shapes = (4,), (100, 100), (4,), (2,)
    given = [Tensor(None, 0, tf.float32, shape) for shape in shapes]
    assert packs_of_shape(given, 1000) == [[0, 2], [1], [3]]


def test_numbers_of_16_bits_are_rounded_as_a_whole():
    """A sum that overflows must do so although its partial sums do not."""

    def product(x, w):
        return tf.cast(tf.matmul(x, w, transpose_a=True), tf.float32) / 2

    partitioned = Partitioned(product, planned.replicas(2))
    ones = tf.ones([4, 1], tf.float16)
    for large, expected in ((2e4, np.inf), (1e4, 2e4)):
        (result,) = tf.nest.flatten(partitioned(large * ones, ones))
        assert result.numpy() == expected == product(large * ones, ones).numpy()


def test_sums_of_16_bits_are_rounded_once():
    """60,000 + 60,000 is infinite in 16 bits; 60,000 more and less is not."""

    def product(x, w):
        return tf.cast(tf.matmul(x, w, transpose_a=True), tf.float32)

    partitioned = Partitioned(product, planned.replicas(3))
    ones = tf.ones([3, 1], tf.float16)
    for rows, expected in (([6e4, 6e4, -6e4], 6e4), ([2048, 1, 1], 2050)):
        rows = tf.constant(rows, tf.float16)[:, None]
        (result,) = tf.nest.flatten(partitioned(rows, ones))
        assert abs(result.numpy() - expected) < 16  # 6e4 in steps of 32.
        assert result.numpy() == product(rows, ones).numpy()
