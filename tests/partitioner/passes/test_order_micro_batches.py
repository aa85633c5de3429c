"""Micro-batches share a device's variables and sums, and take turns on it."""

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.partitioner.step.definitions import node_name
from tests.devices import device_names
from tests.partitioner.passes.conftest import lines
from tests.partitioner.rules import planned


def step(x):
    return tf.reduce_sum(tf.sin(x), 0)


def centred(x):
    y = tf.sin(x)
    return tf.reduce_sum(tf.cos(y - tf.reduce_mean(y, 0)), 0)


def test_parts_of_a_device_are_accumulated_before_it_communicates(dumped):
    text = dumped(step, [None, 2], replicas=planned.replicas(2).split(2))
    text = text["order_micro_batches"]
    assert lines(text, "= Sin(")[0].endswith("on each replica, phase 0")
    (sum_,) = lines(text, "Accumulate(")
    assert sum_.endswith("P(sum)), phase 0")
    assert text.index("Accumulate(") < text.index("all_reduce.sum(")


def test_what_needs_all_rows_ends_a_phase(dumped):
    text = dumped(centred, [None, 2], replicas=planned.replicas(2).split(2))
    text = text["order_micro_batches"]
    assert lines(text, "= Sin(")[0].endswith("phase 0")
    assert lines(text, "= Cos(")[0].endswith("phase 1")


def test_draws_wait_for_the_phase_that_uses_them(dumped):
    def noisy(x):
        noise = tf.random.stateless_normal(tf.shape(x), [1, 2])
        return centred(x) + tf.reduce_sum((x - tf.reduce_mean(x)) * noise)

    text = dumped(noisy, [None, 2], replicas=planned.replicas(2).split(2))
    text = text["order_micro_batches"]
    (draw,) = lines(text, "= StatelessRandomNormalV2(")
    assert draw.endswith("phase 1")


def masked_mean(x, w):
    """The loss of a loop's outputs, divided by a mask's sum, and its gradient."""
    mask = tf.cast(x[:, 0] > 0, x.dtype)
    with tf.GradientTape() as tape:
        tape.watch(w)
        _, y = tf.while_loop(
            lambda number, y: number < 3,
            lambda number, y: (number + 1, tf.tanh(y * w)),
            (0, x),
            maximum_iterations=3,
        )
        values = tf.reduce_sum(tf.cos(y), 1)
        loss = tf.reduce_sum(values * mask / tf.reduce_sum(mask))
    return tape.gradient(loss, w), loss


def test_loops_wait_for_the_phase_of_the_loss(dumped):
    text = dumped(
        masked_mean, [None, 2], [], replicas=planned.replicas(2).split(2)
    )
    text = text["order_micro_batches"]
    assert lines(text, "= Cos(")[0].endswith("phase 1")
    loops = lines(text, "While(")
    assert len(loops) == 2 and all("phase 1" in loop for loop in loops)
    phases = [line[-1] for line in lines(text, "Accumulate(")]
    assert sorted(phases) == ["0", "1", "1"]


def test_one_micro_batch_adds_no_pass(dumped):
    text = dumped(step, [None, 2], replicas=planned.replicas(2).split(1))
    assert "order_micro_batches" not in text


def test_a_variable_is_read_and_a_sum_is_assigned_once_per_device(dumped):
    import kerasmgpu

    strategy = kerasmgpu.MirroredStrategy(device_names(2))
    with strategy.scope():
        total = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
        weight = tf.Variable(2.0)

    def counting(x):
        total.assign_add(tf.reduce_sum(x) * weight)
        return tf.reduce_sum(x)

    function = Partitioned(
        counting, strategy.replicas.split(3), strategy.extended.one_device
    )
    x = np.ones([7, 2], "float32")
    program, _ = function.prepared(tf.constant(x))
    with strategy.scope():
        function(x)
        function(x)
    assert total.read_value().numpy() == 2 * 2 * 14
    nodes = program.written().library[-1].node_def
    reads = [node for node in nodes if node.op == "ReadVariableOp"]
    assert len(reads) == 4  # Two variables on two devices.


def test_the_first_nodes_of_a_turn_wait_for_the_turn_before():
    def backward(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(tf.sin(tf.sin(x @ w) @ w) ** 2)
        return tape.gradient(loss, w)

    function = Partitioned(backward, planned.replicas(1).split(3))
    x = tf.constant(np.ones([7, 2], "float32"))
    program, _ = function.prepared(x, tf.ones([2, 2]))
    nodes = {n.name: n for n in program.written().library[-1].node_def}

    def ancestors(name):
        found, waiting = set(), [name]
        while waiting:
            one = waiting.pop()
            if one in nodes and one not in found:
                found.add(one)
                waiting += map(node_name, nodes[one].input)
        return found

    products = {
        turn: [
            name
            for name, node in nodes.items()
            if node.op == "MatMul" and name.startswith(f"replica_{turn}/")
        ]
        for turn in range(3)
    }
    assert all(products.values())
    for turn in (1, 2):
        for name in products[turn]:
            assert ancestors(name).issuperset(products[turn - 1])
