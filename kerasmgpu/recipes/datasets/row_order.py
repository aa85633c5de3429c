"""The order in which training sees the rows: a function of seed and pass.

A shuffle that keeps its own count starts anew when a run is resumed. Here a run
can go on at any step and sees what it would have seen.
"""

import tensorflow as tf


def batches(num_rows, global_batch_size, seed, first_step=0):
    """Row numbers of one step after the other, pass after pass, endless.

    Every pass is a permutation of all rows; its last batch may be smaller.
    Returns a `tf.data.Dataset` of int64 tensors, `[rows]`, from `first_step`
    on.
    """
    steps_per_pass = -(-num_rows // global_batch_size)

    def one_pass(number):
        order = tf.random.experimental.stateless_shuffle(
            tf.range(num_rows, dtype=tf.int64), seed=[seed, number]
        )
        return tf.data.Dataset.from_tensor_slices(order).batch(
            global_batch_size
        )

    return from_step(first_step, steps_per_pass, one_pass)


def from_step(first_step, steps_per_pass, one_pass):
    """Endless passes from a step on; `one_pass` makes one, by its number."""
    passes = tf.data.Dataset.counter(first_step // steps_per_pass)
    return passes.flat_map(one_pass).skip(first_step % steps_per_pass)


def shuffled(arrays, global_batch_size, seed, first_step=0):
    """Batches of the rows of arrays, in the order of `batches`, endless."""
    # Held once, in the host's memory: a constant of the graph may not exceed
    # 2 GB.
    with tf.device("CPU:0"):
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    num_rows = int(tf.nest.flatten(tensors)[0].shape[0])
    order = batches(num_rows, global_batch_size, seed, first_step)
    return mapped(
        order,
        lambda rows: tf.nest.map_structure(
            lambda tensor: tf.gather(tensor, rows), tensors
        ),
    )


def mapped(order, element):
    """Elements of batches of row numbers, made in parallel and ahead."""
    return order.map(element, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
