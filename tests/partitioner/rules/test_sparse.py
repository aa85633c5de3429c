"""Rules for entries of sparse rows."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.devices import device_names
from tests.partitioner.rules.planned import ROWS, Planned, replicas

SPARSE = tf.SparseTensorSpec([ROWS, 6])


def batch(rows, seed=0, columns=6):
    """Sparse rows with few entries; some have none."""
    random = np.random.default_rng(seed)
    dense = random.normal(size=(rows, columns)).astype("float32")
    dense *= random.random((rows, columns)) < 0.3
    dense[:: rows // 2 or 1] = 0
    return tf.sparse.from_dense(dense)


def weights(*shape):
    return tf.random.stateless_normal(shape, seed=(3, 4))


def dense_net(x, w):
    with tf.GradientTape() as tape:
        tape.watch(w)
        out = tf.sparse.to_dense(x) @ w
        loss = tf.reduce_mean(out**2)
    return loss, out, tape.gradient(loss, w)


def sparse_net(x, w):
    with tf.GradientTape() as tape:
        tape.watch([w, x.values])
        out = tf.sparse.sparse_dense_matmul(x, w)
        loss = tf.reduce_mean(tf.sin(out))
    return loss, out, *tape.gradient(loss, [w, x.values])


def observed(x, w):
    """The loss of a recommender: at the entries of a sparse target only."""
    target = tf.sparse.reorder(x)
    with tf.GradientTape() as tape:
        tape.watch(w)
        out = tf.sparse.to_dense(x) @ w @ tf.transpose(w)
        errors = tf.gather_nd(out, target.indices) - target.values
        rows = tf.math.unsorted_segment_sum(
            errors**2, target.indices[:, 0], tf.shape(out)[0]
        )
        loss = tf.reduce_mean(rows)
    return loss, rows, tape.gradient(loss, w)


def gathered_rows(x, w):
    rows = tf.reduce_sum(tf.sparse.to_dense(x), 1, keepdims=True) * w[0]
    numbers = tf.cast(x.indices, tf.int32)[:, 0]
    highest = tf.math.unsorted_segment_max(
        x.values, x.indices[:, 0], x.dense_shape[0]
    )
    return tf.gather(rows, numbers) * x.values[:, tf.newaxis], highest


def of_entries_alone(x, w):
    noise = tf.random.stateless_uniform(tf.shape(x.values), seed=(1, 2))
    return x.values * noise, tf.reduce_sum(x.values), tf.sparse.reduce_sum(x, 1)


def keras_dense(x, w):
    """What a dense layer of Keras does with sparse rows."""
    with tf.GradientTape() as tape:
        tape.watch(w)
        given, _ = tf.sparse.fill_empty_rows(x, 0.0)
        columns = given.with_values(given.indices[:, 1])
        out = tf.nn.embedding_lookup_sparse(w, columns, given, combiner="sum")
        loss = tf.reduce_mean(tf.sin(out))
    gradient = tf.convert_to_tensor(tape.gradient(loss, w))
    return loss, out, gradient


NETS = (
    dense_net,
    sparse_net,
    observed,
    gathered_rows,
    of_entries_alone,
    keras_dense,
)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("num_replicas", [1, 2, 3, 8])
def test_replicas_do_what_one_device_does(net, num_replicas):
    partitioned = Partitioned(net, replicas(num_replicas))
    w = weights(6, 3)
    for rows in (7, 9, 1, 2, 0, 24):
        x = batch(rows, seed=rows)
        for one, many in zip(net(x, w), partitioned(x, w)):
            np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("net", [dense_net, sparse_net, observed])
def test_rows_stay_apart(net):
    planned = Planned(net, SPARSE, [6, 3])
    assert planned.gathered == []
    assert planned.kinds[0] == "partial sum"
    assert planned.kinds[1] == "rows on 0"
    assert planned.kinds[2] == "partial sum"


def test_rows_that_are_filled_stay_apart():
    planned = Planned(keras_dense, SPARSE, [6, 3])
    assert set(planned.gathered) == {"Unique"}
    assert planned.kinds[:2] == ["partial sum", "rows on 0"]


def test_an_input_with_other_rows_is_not_mixed_up():
    def step(x, y):
        return tf.sparse.to_dense(x), tf.sparse.to_dense(y)

    partitioned = Partitioned(step, replicas(3))
    for x, y in ((batch(7), batch(4, 1)), (batch(3), batch(9, 2))):
        for one, many in zip(step(x, y), partitioned(x, y)):
            np.testing.assert_array_equal(many, one)


def test_rows_of_sparse_and_dense_inputs_are_checked_to_be_equal():
    def step(x, y):
        return tf.reduce_sum((tf.sparse.to_dense(x) - y) ** 2)

    specifications = tf.SparseTensorSpec([None, 6]), tf.TensorSpec([None, 6])
    partitioned = Partitioned(step, replicas(2))
    partitioned.program(specifications)
    x, y = batch(7), tf.ones([7, 6])
    np.testing.assert_allclose(partitioned(x, y), step(x, y), rtol=1e-6)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="row by row|shapes"
    ):
        partitioned(x, tf.ones([5, 6]))


def test_entries_of_three_axes():
    def step(x):
        dense = tf.sparse.to_dense(x)
        return tf.gather_nd(dense * 2, x.indices), dense

    random = np.random.default_rng(0).normal(size=(7, 3, 2))
    x = tf.sparse.from_dense(np.where(random > 0.5, random, 0))
    partitioned = kerasmgpu.partition(step, devices=device_names(2))
    for one, many in zip(step(x), partitioned(x)):
        np.testing.assert_allclose(many, one)


@pytest.mark.parametrize("net", [dense_net, sparse_net, observed])
def test_entries_may_come_in_any_order(net):
    x, w = batch(7), weights(6, 3)
    order = np.random.default_rng(0).permutation(len(x.values))
    mixed = tf.SparseTensor(
        tf.gather(x.indices, order), tf.gather(x.values, order), x.dense_shape
    )
    partitioned = Partitioned(net, replicas(3))
    # As on one device, where `to_dense` and others want them in order.
    for one, many in zip(net(x, w), partitioned(mixed, w)):
        np.testing.assert_allclose(many, one, rtol=1e-5, atol=1e-6)
