"""Plans of device meshes, and plans that costs decide on."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.partitioner.planning import facts
from kerasmgpu.partitioner.planning.planner import (
    plan_mesh,
)
from kerasmgpu.partitioner.rules.kinds import PARTIAL, REPLICATED, Rows, Sharded
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.runtime.tracing import Trace
from kerasmgpu.partitioner.step.constraints import laid_out
from tests.partitioner import window_programs
from tests.partitioner.rules import planned


def dense(images, kernel, bias):
    return tf.nn.relu(tf.nn.bias_add(images @ kernel, bias))


def gradients(images, kernel, bias):
    with tf.GradientTape() as tape:
        tape.watch([kernel, bias])
        outputs = dense(images, kernel, bias)
    return tape.gradient(outputs, [kernel, bias])


def placements(function):
    """Placements of a function's outputs on a mesh of two axes.

    Rows of the images are sharded on the first axis, and the units of the layer
    on the second one.
    """
    shapes = [8, 4], [4, 6], [6]
    trace = Trace(function, tuple(map(tf.TensorSpec, shapes)), "dense")
    facts.infer(trace.graph, [])
    rows, units = Rows(8), Rows(6, over=(1,))
    given = [
        (Sharded(0, rows), REPLICATED),
        (REPLICATED, Sharded(1, units)),
        (REPLICATED, Sharded(0, units)),
    ]
    plans = plan_mesh(trace.graph, given, planning_axes=((0,), (1,)))
    return [
        tuple(of_axis.kinds[made] for of_axis in plans)
        for made in trace.graph.outputs
    ]


def test_a_dense_layer_on_a_mesh_of_two_axes():
    rows, units = Rows(8), Rows(6, over=(1,))
    assert placements(dense) == [(Sharded(0, rows), Sharded(1, units))]


def test_its_gradients_are_summed_over_the_axis_of_rows_only():
    units = Rows(6, over=(1,))
    assert placements(gradients) == [
        (PARTIAL, Sharded(1, units)),
        (PARTIAL, Sharded(0, units)),
    ]


@pytest.mark.parametrize("rows, axis", [((9, 2), 0), ((2, 9), 1)])
def test_the_smaller_input_of_a_product_is_sent(rows, axis):
    """Of two inputs by rows, the first batch's larger one stays sharded."""
    function = Partitioned(
        lambda x, y: tf.matmul(x, y, transpose_b=True), planned.replicas(2)
    )
    batch = [np.ones([n, 3], np.float32) for n in rows]
    program = function.program(
        tuple(tf.TensorSpec([None, 3]) for _ in rows),
        first_batch=[one.shape for one in batch],
    )
    (product,) = program.trace.graph.outputs
    assert program.plans[0].kinds[product].axis == axis
    np.testing.assert_array_equal(function(*batch), np.full(rows, 3.0))
    assert function.programs == [program]


def test_lengths_that_vary_are_divided_and_are_no_rows():
    """The last result adds an axis of each to the other; both are 5."""

    def step(x, labels, mark=lambda x: laid_out(x, [1])):
        logits = tf.tensordot(mark(x), [[1.0, 2, -1], [3, 1, 0]], 1)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        swapped = tf.transpose(logits, (1, 0, 2))
        return loss, tf.tanh(swapped), tf.reduce_sum(swapped + logits, -1)

    shapes = ([None, None, 2], "float32"), ([None, None], "int32")
    specifications = tuple(tf.TensorSpec(*shape) for shape in shapes)
    partitioned = Partitioned(step, window_programs.replicas((2,), False))
    program = partitioned.program(specifications)
    (plans,), outputs = program.plans, program.trace.graph.outputs
    kinds = [planned.text_of(plans.kinds[one]) for one in outputs]
    assert kinds == ["rows on 1", "rows on 0", "replicated"]
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(5, 5, 2)), tf.float32)
    labels = tf.constant(random.integers(0, 3, (5, 5)), tf.int32)
    expected = step(x, labels, mark=lambda x: x)
    for one, other in zip(partitioned(x, labels), expected):
        np.testing.assert_allclose(one, other, rtol=1e-5)
