"""Rules for variables."""

import tensorflow as tf

from tests.partitioner.program import Input, Variable
from tests.partitioner.rules.planned import ROWS, Planned, same


def test_what_is_read_is_whole():
    variable = tf.Variable(tf.ones([4]))
    plan = Planned(lambda x: variable.read_value(), [ROWS])
    assert plan.kinds == ["replicated"]


def test_what_is_assigned_is_summed_before():
    """Each copy gets the sum of all rows, twice."""
    weight = Variable(Input("whole", 0, (2,), "float32"))

    def step(weight, x):
        weight.assign_add(tf.reduce_sum(x, 0))
        return (weight.read_value(),)

    same(step, [5, 2], num_replicas=3, variables=[weight])


def test_a_sum_over_replicas_keeps_its_parts():
    total = Variable(Input("zero", 0, (), "float32"), "SUM", "ON_READ")

    def step(total, x):
        total.assign_add(tf.reduce_sum(x))
        return (x,)

    same(step, [5, 2], num_replicas=3, variables=[total])


def test_a_whole_value_is_added_to_a_sum_once():
    total = Variable(Input("zero", 0, (), "float32"), "SUM", "ON_READ")

    def step(total, x):
        total.assign_add(1.0)
        return (x,)

    same(step, [5, 2], num_replicas=3, variables=[total])


def test_some_rows_of_a_variable_are_changed():
    table = Variable(Input("whole", 0, (3, 2), "float32"))

    def step(table, x):
        numbers = tf.range(tf.shape(x)[0]) % 3
        table.scatter_add(tf.IndexedSlices(x, numbers))
        return (table.read_value(),)

    same(step, [5, 2], num_replicas=3, variables=[table])
