"""A traced function as a graph of nodes."""

import tensorflow as tf

from kerasmgpu.partitioner.step import reading


def read(function, *shapes):
    """Returns the graph of a function of float32 tensors."""
    specifications = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    traced = tf.function(function, specifications, autograph=False)
    return reading.read(traced.get_concrete_function().graph)


def types(found):
    """Returns the types of a graph's operations, without constants."""
    return [n.type for n in found.nodes if n.type not in ("Const", "Input")]


def test_nodes_stand_in_the_order_of_need():
    found = read(lambda x, y: tf.tanh(x * y + x), [2], [2])
    assert types(found) == ["Mul", "AddV2", "Tanh"]
    assert [tensor.static for tensor in found.inputs] == [(2,), (2,)]
    assert found.outputs == found.nodes[-1].outputs


def test_calls_are_inlined():
    inner = tf.function(lambda x: tf.tanh(x), autograph=False)
    found = read(lambda x: tf.function(lambda y: inner(y) + 1.0)(x), [2])
    assert types(found) == ["Tanh", "AddV2"]


def test_sizes_that_are_known_behind_a_call_stay_known():
    variable = tf.Variable(tf.ones([3, 1]))
    inner = tf.function(lambda x: x @ variable, autograph=False)
    found = read(lambda x: tf.identity(inner(x)), [2, 3])
    assert found.outputs[0].static == (2, 1)


def test_what_is_the_same_is_computed_once():
    found = read(lambda x: tf.tanh(x) + tf.tanh(tf.identity(x)), [2])
    assert types(found) == ["Tanh", "AddV2"]
    assert found.nodes[-1].inputs == found.nodes[-2].outputs * 2


def test_draws_are_not_the_same():
    def step(x):
        return x + tf.random.normal([2]) + tf.random.normal([2])

    found = read(step, [2])
    assert types(found).count("RandomStandardNormal") == 2


def test_what_nobody_needs_is_gone():
    def step(x):
        tf.exp(x)
        return tf.tanh(x)

    assert types(read(step, [2])) == ["Tanh"]


def test_hints_of_order_are_dropped():
    def step(x):
        y = tf.tanh(x)
        with tf.control_dependencies([y]):
            return y, tf.exp(x)

    found = read(step, [2])
    assert not any(node.controls for node in found.nodes)


def test_what_a_check_is_in_front_of_waits_for_it():
    def step(x):
        checked = tf.debugging.assert_positive(x)
        with tf.control_dependencies([checked]):
            y = tf.tanh(x)
        with tf.control_dependencies([y]):
            return tf.exp(x)

    by_type = {node.type: node for node in read(step, [2]).nodes}
    assert by_type["Tanh"].controls
    assert by_type["Exp"].controls == [by_type["Tanh"]]


def test_effects_stay_in_order():
    variable = tf.Variable(1.0)

    def step(x):
        variable.assign_add(x)
        value = variable.read_value()
        variable.assign(3.0)
        return value

    found = read(step, [])
    first, read_node, last = (
        next(n for n in found.nodes if n.type == type)
        for type in (
            "AssignAddVariableOp",
            "ReadVariableOp",
            "AssignVariableOp",
        )
    )
    assert first in read_node.controls
    assert {first, read_node} & set(last.controls)
    ends = [*found.effects, *(c for n in found.effects for c in n.controls)]
    assert last in ends


def test_bodies_are_graphs_of_their_own():
    def step(x):
        return tf.while_loop(lambda x: x < 9.0, lambda x: (x * 2.0,), [x])

    found = read(step, [])
    (loop,) = [node for node in found.nodes if "While" in node.type]
    condition, body = loop.bodies
    assert "Less" in types(condition)
    assert "Mul" in types(body)


def test_the_order_of_effects_is_that_of_the_operations():
    """TensorFlow keeps effects in sets, whose order differs by process."""
    variables = [tf.Variable(0.0) for _ in range(4)]

    def step(x):
        for variable in variables:
            variable.assign_add(x)

    traced = tf.function(step, [tf.TensorSpec([])], autograph=False)
    source = traced.get_concrete_function().graph
    expected = [node.name for node in reading.read(source).effects]
    assert len(expected) == 4
    outputs = list(source.control_outputs)
    for order in (outputs, outputs[::-1], outputs[1:] + outputs[:1]):
        source.control_outputs[:] = order
        assert [node.name for node in reading.read(source).effects] == expected
