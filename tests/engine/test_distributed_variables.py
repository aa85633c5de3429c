"""Variables with copies: as numbers, assigned in parts, and as sums."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf


@pytest.mark.parametrize(
    "kind, value", [(int, 3), (float, 0.5), (complex, 2.0 + 1.0j)]
)
def test_a_variable_with_copies_is_a_number(replicas, kind, value):
    with replicas(2).scope():
        variable = tf.Variable(value)
    assert kind(variable) == value


@pytest.mark.parametrize("value", [0.5, [1.0, 2.0]])
def test_a_variable_with_copies_is_an_array_in_and_out_of_scope(
    replicas, value
):
    with replicas(2).scope():
        variable = tf.Variable(value)
        inside = np.array(variable)
    outside = np.asarray(variable, dtype="float64")
    assert inside.dtype == np.float32 and outside.dtype == np.float64
    assert np.array_equal(inside, value) and np.array_equal(outside, value)


def test_a_variable_whose_copies_are_summed_is_their_sum(replicas):
    with replicas(2).scope():
        variable = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    for copy, value in zip(variable.values, (1.0, 2.0)):
        copy.assign(value)
    assert float(variable) == 3.0


def test_the_step_count_of_a_model_is_a_number(replicas):
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(tf.ones([4, 1]), tf.ones([4, 1]), batch_size=2, verbose=0)
    assert int(model.optimizer.iterations) == 2
    assert int(model.optimizer.iterations.value) == 2


@pytest.mark.parametrize("inside", [False, True])
def test_a_part_is_assigned_to_all_copies(replicas, inside):
    strategy = replicas(3)
    with strategy.scope():
        variable = tf.Variable(np.arange(6.0))
    with strategy.scope() if inside else contextlib.nullcontext():
        variable[1:3].assign([7.0, 8.0])
        np.testing.assert_array_equal(variable[2:], [8.0, 3.0, 4.0, 5.0])
    for copy in variable.values:
        np.testing.assert_array_equal(copy, [0.0, 7.0, 8.0, 3.0, 4.0, 5.0])


def a_sum(strategy, value):
    with strategy.scope():
        return tf.Variable(
            value,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )


@pytest.mark.parametrize("value", [7, 1.1, [1.0, 2.0]])
def test_a_sum_starts_with_its_initial_value(replicas, value):
    variable = a_sum(replicas(3), value)
    np.testing.assert_array_equal(np.array(variable), np.array(value, "f4"))


class FromOne(keras.metrics.Metric):
    """Counts batches, and starts with one."""

    def __init__(self):
        super().__init__()
        self.count = self.add_weight(initializer="ones", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.count.assign_add(1.0)

    def result(self):
        return self.count


def test_a_metric_that_starts_with_one_is_that_of_one_device(replicas):
    def counted():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        metric = FromOne()
        model.compile("sgd", "mse", metrics=[metric])
        before = float(metric.result())
        x = np.ones([6, 1], "float32")
        logs = model.evaluate(x, x, batch_size=2, verbose=0, return_dict=True)
        return before, logs[metric.name]

    one = counted()
    with replicas(2).scope():
        assert counted() == one
    assert one[0] == 1.0


@pytest.mark.parametrize("value", [7, 1.1])
def test_an_assigned_sum_is_that_value_in_and_out_of_scope(replicas, value):
    strategy = replicas(3)
    variable = a_sum(strategy, type(value)(0))
    returned = variable.assign(value)
    assert float(returned) == float(variable) == np.float32(value)
    with strategy.scope():
        variable.assign(variable + value)
    assert float(variable) == np.float32(value) + np.float32(value)


def test_a_sum_is_assigned_in_a_graph(replicas):
    variable = a_sum(replicas(2), 0)

    @tf.function
    def assign(value):
        variable.assign(value)

    assign(5)
    assert int(variable) == 5


def test_a_replica_assigns_its_own_part(replicas):
    strategy = replicas(2)
    variable = a_sum(strategy, 0)
    strategy.run(lambda: variable.assign(3))
    assert int(variable) == 6


def test_a_restored_sum_is_what_was_saved(replicas, tmp_path):
    variable = a_sum(replicas(2), 0)
    variable.assign(7)
    path = tf.train.Checkpoint(v=variable).save(tmp_path / "sum")
    variable.assign(0)
    tf.train.Checkpoint(v=variable).restore(path).assert_consumed()
    assert int(variable) == 7


def test_a_metric_of_integers_counts_outside_of_steps(replicas):
    with replicas(2).scope():
        metric = keras.metrics.IoU(num_classes=2, target_class_ids=[0, 1])
        metric.update_state([0, 0, 1, 1], [0, 1, 0, 1])
        metric.update_state([0, 0, 1, 1], [0, 0, 1, 1])
        inside = float(metric.result())
    np.testing.assert_allclose([inside, float(metric.result())], 0.6)


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_added_to_a_sum_is_added_once(replicas, inside):
    strategy = replicas(3)
    variable = a_sum(strategy, 2.0)
    with strategy.scope() if inside else contextlib.nullcontext():
        returned = variable.assign_add(5.0)
        assert float(returned) == float(variable) == 7.0
        variable.assign_sub(3.0)
    assert float(variable) == 4.0


def test_a_layer_may_add_to_a_sum_when_its_model_is_built(replicas):
    class Counting(keras.layers.Layer):
        def build(self, shape):
            self.calls = tf.Variable(
                0.0,
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

        def call(self, x):
            self.calls.assign_add(1.0)
            return x * 1.0

    with replicas(2).scope():
        counting = Counting()
        model = keras.Sequential([keras.Input((2,)), counting])
        model.compile(loss="mse")
    model.evaluate(np.ones([6, 2]), np.ones([6, 2]), batch_size=2, verbose=0)
    assert float(counting.calls) == 3.0
