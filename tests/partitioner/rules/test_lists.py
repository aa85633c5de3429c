"""Rules for lists of tensors, as loops over time have them."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules.planned import (
    ROWS,
    kinds_of,
    replicas,
    same,
)


def over_time(x):
    """Running sums along axis 1, and their gradient."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        turned = tf.transpose(x, [1, 0, 2])
        steps = tf.TensorArray(tf.float32, 3).unstack(turned)

        def body(n, state, made):
            state = tf.tanh(state + steps.read(n))
            return n + 1, state, made.write(n, state)

        start = tf.zeros([tf.shape(x)[0], 2])
        _, _, made = tf.while_loop(
            lambda n, *_: n < 3, body, [0, start, tf.TensorArray(tf.float32, 3)]
        )
        made = made.stack()
        loss = tf.reduce_sum(made)
    return made, tape.gradient(loss, x)


def test_each_replica_has_a_list_of_its_rows():
    assert kinds_of(over_time, [ROWS, 3, 2]) == ["rows on 1", "rows on 0"]


def test_lists_give_what_one_device_gives():
    same(over_time, [5, 3, 2], num_replicas=3)
    same(over_time, [1, 3, 2], num_replicas=3, static=True)


def in_a_branch(depth):
    """The gradient of a loop in a branch, which keeps a list for it."""

    def loop(x):
        return tf.while_loop(
            lambda n, _: n < 3,
            lambda n, y: (n + 1, tf.tanh(y) * y),
            [0, x],
        )[1]

    def branch(x, number):
        return tf.cond(number % 2 == 0, lambda: loop(x), lambda: tf.sin(x))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            if depth == 1:
                y = branch(x, tf.shape(x)[1])
            else:
                _, y = tf.while_loop(
                    lambda n, _: n < 3,
                    lambda n, y: (n + 1, branch(y, n)),
                    [0, x],
                )
            loss = tf.reduce_mean(y**2)
        return loss, tape.gradient(loss, x)

    return step


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("rows", [7, 1])
def test_lists_that_branches_keep_for_their_gradients(depth, rows):
    for static in (True, False):
        same(in_a_branch(depth), [rows, 4], num_replicas=3, static=static)


def test_lists_kept_by_a_function_of_its_own():
    kept = tf.function(in_a_branch(1), autograph=False)
    kept(tf.ones([2, 4]))  # Traced before, with optionals in it.
    same(kept, [5, 4], num_replicas=2)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("static", [True, False])
def test_the_gradient_of_a_loop_in_a_loop_keeps_lists_of_lists(static):
    def inner(rows):
        def body(n, last, made):
            return n + 1, rows[n], made.write(n, rows[n])

        return tf.while_loop(
            lambda n, *_: n < 3,
            body,
            [0, rows[0], tf.TensorArray(tf.float32, 3)],
        )[1]

    def step(x):
        square = tf.eye(tf.shape(x)[0])
        with tf.GradientTape() as tape:
            tape.watch(square)
            turned = tf.transpose(square)
            last = tf.while_loop(
                lambda n, _: n < 3,
                lambda n, _: (n + 1, inner(turned)),
                [0, turned[0]],
            )[1]
            loss = tf.reduce_sum(last**2)
        return loss, tape.gradient(loss, square)

    same(step, [3], static=static)


def filled(size, rounds, **settings):
    """A list that a loop fills in some rounds, stacked."""

    def fill(x):
        def body(n, made):
            return n + 1, made.write(n, x * tf.cast(n, x.dtype))

        made = tf.TensorArray(tf.float32, size, **settings)
        _, made = tf.while_loop(lambda n, _: n < rounds, body, [0, made])
        return (made.stack(),)

    return fill


@pytest.mark.parametrize(
    ("size", "rounds", "settings", "length"),
    [
        (5, 5, {}, 5),
        (5, 3, {"element_shape": [None, 2]}, 5),
        (2, 5, {"dynamic_size": True}, None),
    ],
)
def test_a_list_that_a_loop_fills_has_the_length_it_was_made_with(
    size, rounds, settings, length
):
    fill = filled(size, rounds, **settings)
    program = Partitioned(fill, replicas(2)).program(
        (tf.TensorSpec([None, 2]),)
    )
    (made,) = program.trace.graph.outputs
    known = made.shape[0] if isinstance(made.shape[0], int) else None
    assert known == length
    same(fill, [5, 2])
