"""Rewrites of an optimizer's update."""

import collections

import tensorflow as tf

from kerasmgpu.partitioner.runtime.tracing import Trace
from tests.partitioner.program import Input, Variable
from tests.partitioner.rules.planned import same


def types(function):
    """Counts the operations of a function's trace by type."""
    return collections.Counter(node.type for node in nodes(function))


def nodes(function):
    """Returns the nodes of a function's trace."""
    trace = Trace(function, (tf.TensorSpec([], tf.float32),), "step")
    return trace.graph.nodes


def test_what_was_just_assigned_is_not_read_again():
    variable = tf.Variable([1.0, 2.0])

    def step(x):
        variable.assign(variable * x)
        return variable + 1.0

    (total,) = [node for node in nodes(step) if node.type == "AddV2"]
    assert total.inputs[0].node.type == "Mul"


def test_what_was_assigned_by_somebody_else_is_read():
    one, other = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])

    def step(x):
        one.assign(one * x)
        return other + 1.0

    (total,) = [node for node in nodes(step) if node.type == "AddV2"]
    assert total.inputs[0].node.type == "ReadVariableOp"


def test_an_update_is_an_addition_and_an_assignment():
    variable = tf.Variable([1.0, 2.0])

    def step(x):
        variable.assign_add([x, x])

    found = types(step)
    assert found["AssignAddVariableOp"] == 0
    assert found["AddV2"] == found["AssignVariableOp"] == 1


def test_what_is_assigned_anew_is_assigned_once():
    variable = tf.Variable([1.0, 2.0])

    def step(x):
        variable.assign(variable * x)
        variable.assign_sub(variable * 0.5)
        return variable + 1.0

    assert types(step)["AssignVariableOp"] == 1


def test_what_somebody_looks_at_in_between_is_assigned():
    variable = tf.Variable([1.0, 2.0])

    def step(x):
        variable.assign(variable * x)
        tf.cond(x > 0, lambda: variable[0], lambda: x)
        first = tf.gather(variable, [0])
        variable.assign_sub(variable * 0.5)
        variable.assign(variable * 3.0)
        return first

    assert types(step)["AssignVariableOp"] == 2


def test_updates_of_one_shape_are_one_of_their_stack():
    variables = [tf.Variable(tf.ones([2]) * n) for n in range(3)]

    def step(x):
        for variable in variables:
            variable.assign(tf.tanh(variable * x) * 0.5)

    found = types(step)
    assert found["Tanh"] == 1
    assert found["AssignVariableOp"] == 3


def test_updates_that_need_each_other_stay_apart():
    variables = [tf.Variable(tf.ones([2])) for _ in range(2)]

    def step(x):
        first, second = variables
        first.assign(tf.tanh(first * x))
        second.assign(tf.tanh(second * tf.reduce_sum(first)))

    assert types(step)["Tanh"] == 2


def test_stacks_change_nothing():
    weights = [
        Variable(Input("whole", seed, (2,), "float32")) for seed in range(3)
    ]

    def step(first, second, third, x):
        mean = tf.reduce_mean(x)
        for weight in (first, second, third):
            weight.assign(weight * 0.5 + mean)
            weight.assign_sub(weight * 0.25)
        first.scatter_add(tf.IndexedSlices([mean], [1]))
        first.assign(first * 0.5)
        return first + second, third.read_value()

    same(step, [5, 2], num_replicas=3, variables=weights)
