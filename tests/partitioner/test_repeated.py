"""Copies of what a call added to a trace do what calls would do."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime.repeated import Repeated


def values(call, numbers=(1.0, 2.0, 3.0)):
    """Variables after a traced step that calls a function for each of them.

    Args:
        call: Function of the `Repeated`'s `call` and the variables.
    """
    variables = [tf.Variable(number) for number in numbers]

    @tf.function(autograph=False)
    def step():
        call(Repeated(lambda *own: own).call, variables)

    step()
    return [variable.numpy() for variable in variables]


def test_variables_and_tensors_are_those_of_each_call(copies):
    def update(variable, gradient):
        variable.assign_sub(0.5 * gradient * variable)
        return variable + gradient

    def step(call, variables):
        for number, variable in enumerate(variables):
            result = call(update, variable, tf.ones([]) * number)
            variable.assign(result * 10)

    assert values(step) == [10.0, 20.0, 20.0]
    assert len(copies) == 2


def test_calls_whose_operations_wait_are_traced(copies):
    def update(variable):
        with tf.control_dependencies([tf.no_op(), variable.assign(5.0).op]):
            variable.assign_add(tf.ones([]))

    def step(call, variables):
        for variable in variables:
            call(update, variable)

    assert values(step) == [6.0, 6.0, 6.0]
    assert not copies


def test_each_call_draws_its_own_numbers(copies):
    def step(call, variables):
        for variable in variables:
            call(lambda v: v.assign(tf.random.uniform([])), variable)

    assert len(set(values(step))) == 3
    assert not copies


@pytest.mark.parametrize("of_all", [True, False])
def test_what_all_calls_change_is_changed_by_each(of_all, copies):
    count = tf.Variable(0.0)

    def update(variable):
        count.assign_add(1.0 if of_all else variable / variable)
        variable.assign(count)

    def step(call, variables):
        for variable in variables:
            call(update, variable)

    assert values(step) == [1.0, 2.0, 3.0]
    assert not copies


def test_what_another_call_has_changed_is_read_again(copies):
    def step(call, variables):
        vector, *others = variables

        def add(variable):
            variable.assign_add(tf.reduce_sum(vector))

        call(add, others[0])
        call(lambda v: v.assign_add(tf.ones([2])), vector)
        for variable in others[1:]:
            call(add, variable)

    found = values(step, ([1.0, 1.0], 0.0, 0.0, 0.0))
    np.testing.assert_equal(found[1:], [2.0, 4.0, 4.0])
    assert not copies


def test_what_a_call_that_is_traced_may_have_changed_is_read_again(copies):
    shared = tf.Variable(1.0)
    own = Repeated(
        lambda variable, is_traced: None if is_traced else [variable]
    )

    @tf.function(autograph=False)
    def step(variables):
        def update(variable, is_traced):
            if is_traced:
                shared.assign(7.0)
            variable.assign(shared)

        for variable, is_traced in zip(variables, (False, True, False)):
            own.call(update, variable, is_traced)

    variables = [tf.Variable(0.0) for _ in range(3)]
    step(variables)
    assert [v.numpy() for v in variables] == [1.0, 7.0, 7.0]
    assert not copies


@pytest.mark.parametrize("numbers", [(1.0, [2.0]), (1.0, 2)])
def test_other_shapes_and_types_are_traced(numbers, copies):
    def step(call, variables):
        for variable in variables:
            call(lambda v: v.assign(v + tf.cast(tf.size(v), v.dtype)), variable)

    values(step, numbers)
    assert not copies


def test_a_tape_sees_each_call(copies):
    def step(call, variables):
        with tf.GradientTape() as tape:
            results = [call(lambda v: v * v, one) for one in variables]
        for variable, gradient in zip(
            variables, tape.gradient(results, variables)
        ):
            variable.assign(gradient)

    assert values(step) == [2.0, 4.0, 6.0]
    assert not copies


def test_calls_that_wait_are_traced(copies):
    order = tf.Variable(0.0)

    def step(call, variables):
        for number, variable in enumerate(variables):
            before = order.assign(number + 1.0)
            with tf.control_dependencies([before.op]):
                call(lambda v: v.assign(v * 2.0), variable)

    assert values(step) == [2.0, 4.0, 6.0]
    assert not copies


def test_functions_are_traced(copies):
    def update(variable):
        variable.assign(tf.cond(variable > 1.5, lambda: 0.0, lambda: 9.0))

    def step(call, variables):
        for variable in variables:
            call(update, variable)

    assert values(step) == [9.0, 0.0, 0.0]
    assert not copies
