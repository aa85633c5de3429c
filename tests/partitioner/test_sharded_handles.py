"""Assignments of elements, and reads in loops, of sharded variables."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from tests.partitioner.sharded_tables import TABLE, assert_same, tables
from tests.strategies.sharded import mirrored

ROWS = np.array([[1, 20, 3], [40, 5, 60]], "float32")


@pytest.fixture(scope="module", params=[2, 3])
def strategy(request):
    """A strategy whose tables are sharded by rows: 4 + 3, or 3 + 2 + 2."""
    return mirrored(request.param, lambda variable: 0)


def strided(table, rows):
    table[2:4].assign(rows)


def strided_columns(table, rows):
    table[::-3, 1:].assign(tf.concat([rows, rows[:1]], 0)[:, :2])


def one_row(table, rows):
    table[4].assign(rows[0])


def newest(table, rows):
    """Reads what it assigned, before it assigns again."""
    table[1].assign(rows[0])
    table[2].assign(table[1] + 1)
    return table[1:3] + 0.0


UPDATES = {
    "rows": strided,
    "columns, backwards": strided_columns,
    "one row": one_row,
    "in order": newest,
}

for _name in ("add", "max", "min", "sub", "update"):

    def _scattered(table, rows, name=f"scatter_nd_{_name}"):
        getattr(table, name)([[5], [2]], rows)

    UPDATES[f"scatter_nd_{_name}"] = _scattered


@pytest.mark.parametrize("name", UPDATES)
def test_elements_are_assigned(strategy, name):
    _, (value,) = assert_same(UPDATES[name], strategy, ROWS)
    assert (value != TABLE).any()


def test_elements_by_index_vectors(strategy):
    def step(table, rows):
        table.scatter_nd_update([[5, 1], [0, 2]], rows[:, 0])
        return table.gather_nd([[5, 1], [6, 2]])

    assert_same(step, strategy, ROWS)


def test_a_loop_that_assigns(strategy):
    @tf.function
    def step(table, rows):
        for i in tf.range(3):
            table[i].assign(table[i + 3] * rows[0])
        return tf.reduce_sum(table)

    assert_same(step, strategy, ROWS)


def loop(table, x):
    """Reads a variable in each of three iterations."""
    for _ in tf.range(3):
        x = tf.tanh(x @ tf.transpose(table)) @ table
    return x


def test_a_loop_reads_what_one_device_reads(strategy):
    (table,) = tables(strategy)
    (expected,) = tables()
    with strategy.scope():
        step = kerasmgpu.partition(tf.function(lambda x: loop(table, x)))
    x = tf.constant(ROWS) / 100
    tf.debugging.assert_near(step(x), tf.function(loop)(expected, x))


def test_reads_are_moved_in_front_of_a_loop(strategy):
    """So the variable is gathered once, and not in each iteration."""
    (table,) = tables(strategy)
    step = strategy.partitioned(tf.function(lambda x: loop(table, x)))
    program = step.program((tf.TensorSpec([512, 3]),)).written().lowered
    (region,) = program.regions
    for body in region.bodies:
        assert not list(body.communication())
        assert not [
            one
            for one in body.instructions
            if getattr(one, "node", None) and one.node.type == "ReadVariableOp"
        ]


def test_a_read_behind_an_assignment_of_the_loop_stays(strategy):
    @tf.function
    def step(table, rows):
        total = tf.zeros([3])
        for _ in tf.range(3):
            table.assign(table * 2.0)
            total += tf.reduce_sum(table, 0)
        return total

    assert_same(step, strategy, ROWS)


def test_a_read_in_a_branch(strategy):
    @tf.function
    def step(table, rows):
        if tf.reduce_sum(rows) > 0:
            table[0].assign(rows[1])
            return table[0] + table[6]
        return rows[0]

    assert_same(step, strategy, ROWS)
