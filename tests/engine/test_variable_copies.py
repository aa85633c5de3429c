"""Copies of variables that are made from the first are as TensorFlow's own."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.engine import variable_copies

SETTINGS = {
    "plain": {},
    "whole numbers": {"dtype": tf.int64, "trainable": False},
    "of any length": {"shape": tf.TensorShape([None, 3])},
    "a constraint": {"constraint": tf.nn.relu},
    "a sum of replicas' values": {"aggregation": tf.VariableAggregation.SUM},
}


def attributes(variable):
    """Those of the variable and its handle; some are of each object alone."""
    own = {"_handle", "_unique_id", "_parent_trackable"}
    own |= {"_distributed_container", "_variable_read"}
    return {
        name: value
        for one in (variable, variable.handle)
        for name, value in vars(one).items()
        if name not in own
    }


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_copy_has_the_attributes_of_tensorflows(
    replicas, monkeypatch, settings
):
    strategy = replicas(3)

    def create():
        with strategy.scope():
            return tf.Variable(np.ones((2, 3)), name="kernel", **settings)

    quick = create()
    monkeypatch.setattr(
        variable_copies.Copies, "first", lambda self, variable: variable
    )
    slow = create()
    assert len(quick.values) == len(slow.values) == 3
    for ours, theirs in zip(quick.values, slow.values):
        assert type(ours) is type(theirs)
        assert ours.device == theirs.device
        assert attributes(ours) == attributes(theirs)
        assert ours.handle._handle_data == theirs.handle._handle_data
        np.testing.assert_array_equal(ours, theirs)
        assert ours.handle._parent_trackable() is ours


def test_a_copy_has_a_value_of_its_own(replicas):
    with replicas(2).scope():
        variable = tf.Variable(tf.ones([100]))
    first, second = variable.values
    second.assign_add(tf.ones([100]))
    first.scatter_nd_update([[0]], [7.0])
    assert (first[0].numpy(), first[1].numpy()) == (7.0, 1.0)
    assert (second[0].numpy(), second[1].numpy()) == (2.0, 2.0)


def test_a_sum_begins_on_the_first_replica(replicas):
    with replicas(2).scope():
        total = tf.Variable(
            5.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    assert [copy.numpy() for copy in total.values] == [5.0, 0.0]


def test_a_function_may_create_variables(replicas):
    """TensorFlow gives variables of a first trace another class."""
    made = []

    @tf.function
    def step():
        if not made:
            made.append(tf.Variable(lambda: 3.0))
        return made[0] + 1.0

    with replicas(2).scope():
        assert step().numpy() == 4.0
    assert [copy.numpy() for copy in made[0].values] == [3.0, 3.0]
