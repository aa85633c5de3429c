"""Rules for matrix products and einsum."""

import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.runtime import report
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.devices import device_names
from tests.partitioner.rules.planned import (
    ROWS,
    Planned,
    kinds_of,
    replicas,
    same,
)


def test_rows_times_a_kernel_are_rows():
    kernel = tf.ones([4, 3])
    assert kinds_of(lambda x: tf.matmul(x, kernel), [ROWS, 4]) == ["rows on 0"]


def test_a_kernels_gradient_is_a_sum_over_replicas():
    kernel = tf.ones([4, 3])

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            loss = tf.reduce_sum(tf.tanh(tf.matmul(x, kernel)))
        return tape.gradient(loss, [x, kernel])

    assert kinds_of(gradients, [ROWS, 4]) == ["rows on 0", "partial sum"]


def test_stacks_of_matrices_keep_their_rows():
    def attention(query, key):
        return tf.matmul(query, key, transpose_b=True)

    both = [ROWS, 5, 4]
    assert kinds_of(attention, both, both) == ["rows on 0"]


@pytest.mark.parametrize(
    "equation, kind",
    [
        ("bqd,bkd->bqk", "rows on 0"),
        ("bqd,bkd->qkb", "rows on 2"),
        ("bqd,bkd->qk", "partial sum"),
    ],
)
def test_einsum_follows_its_letters(equation, kind):
    def product(x, y):
        return tf.einsum(equation, x, y)

    both = [ROWS, 5, 4]
    assert kinds_of(product, both, both) == [kind]


def test_einsum_sums_parts_that_are_linear_in_it():
    kernel = tf.ones([4, 3])

    def product(x):
        return tf.einsum("a,ab->b", tf.reduce_sum(x, 0), kernel)

    assert kinds_of(product, [ROWS, 4]) == ["partial sum"]


def test_a_gradient_of_a_gradient_of_a_product_with_a_batch():
    """Where rows have more axes, sums over them are found by small integers."""

    def step(rows, weights):
        with tf.GradientTape() as outer:
            outer.watch(weights)
            with tf.GradientTape() as inner:
                inner.watch(weights)
                loss = tf.reduce_mean((rows @ weights) ** 2)
            moved = weights - 0.1 * inner.gradient(loss, weights)
            loss = tf.reduce_mean((rows @ moved) ** 2)
        return outer.gradient(loss, weights)

    rows = tf.random.stateless_normal([7, 5, 3], seed=(1, 2))
    weights = tf.random.stateless_normal([3, 1], seed=(3, 4))
    found = kerasmgpu.partition(step, devices=device_names(2))(rows, weights)
    np.testing.assert_allclose(found, step(rows, weights), rtol=1e-5)


def picked_net(rows, first, second):
    """Products of what a mask picks, which nobody knows the rows of."""
    with tf.GradientTape() as tape:
        tape.watch([first, second])
        picked = tf.boolean_mask(rows, rows[:, 0] > 0)
        out = tf.nn.relu(picked @ first) @ second
        loss = tf.reduce_sum(out**2)
    return loss, out, *tape.gradient(loss, [first, second])


@pytest.mark.parametrize("num_replicas", [2, 3, 8])
def test_a_large_product_of_picked_rows_is_shared(num_replicas):
    first = tf.random.stateless_normal([64, 80], seed=(1, 2)) / 64
    second = tf.random.stateless_normal([80, 64], seed=(3, 4)) / 80
    partitioned = Partitioned(picked_net, replicas(num_replicas))
    for size in (9, 1, 2, 0, 40):
        rows = tf.random.stateless_normal([size, 64], seed=(size, 5))
        one = picked_net(rows, first, second)
        for value, found in zip(one, partitioned(rows, first, second)):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-6)
    assert not any(map(report.whole_products, partitioned.programs))


def test_a_small_product_of_picked_rows_is_not():
    planned = Planned(picked_net, [ROWS, 4], [4, 5], [5, 3])
    assert planned.kinds[:2] == ["replicated"] * 2


def test_diagonals_that_are_written_are_whole():
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.einsum("bii->b", x) ** 2)
        return (tape.gradient(loss, x),)

    same(step, [2, 4, 4], num_replicas=3, static=True)


def test_a_matrix_of_unknown_rank_is_the_same_for_all_rows():
    """It may have rows, or not: nobody slices it."""
    kernel = tf.reshape(tf.range(16.0), [4, 4])

    def product(x):
        shape = tf.boolean_mask([4, 4], tf.reduce_sum(x) < [9e9, 9e9])
        return (tf.matmul(x, tf.reshape(kernel, shape)),)

    assert kinds_of(product, [ROWS, 3, 4]) == ["replicated"]
    same(product, [5, 3, 4], num_replicas=3)
