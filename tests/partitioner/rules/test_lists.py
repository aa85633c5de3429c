"""Rules for lists of tensors, as loops over time have them."""

import tensorflow as tf

from tests.partitioner.rules.planned import ROWS, kinds_of, same


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
