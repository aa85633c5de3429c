"""The order in which training sees the rows: a function of seed and pass.

A shuffle that keeps its own count starts anew when a run is resumed. Here the
order of every pass follows from the seed and the number of the pass alone, so
that a run can go on at any step and see what it would have seen.
"""

import tensorflow as tf


def batches(num_rows, global_batch_size, seed, first_step=0):
    """Row numbers of one step after the other, pass after pass, endless.

    Every pass is a permutation of all rows; its last batch may be smaller.

    Args:
        num_rows: Rows of the training data.
        global_batch_size: Rows of a step, on all replicas together.
        seed: Integer.
        first_step: Step to begin with. Defaults to `0`.

    Returns:
        A `tf.data.Dataset` of int64 tensors, `[rows]`.

    Example:

    ```python
    for rows in batches(num_rows=5, global_batch_size=2, seed=0).take(3):
        print(rows.numpy())  # 2, 2 and 1 of the numbers 0 to 4
    ```
    """
    steps_per_pass = -(-num_rows // global_batch_size)

    def one_pass(number):
        order = tf.random.experimental.stateless_shuffle(
            tf.range(num_rows, dtype=tf.int64), seed=[seed, number]
        )
        return tf.data.Dataset.from_tensor_slices(order).batch(
            global_batch_size
        )

    passes = tf.data.Dataset.counter(first_step // steps_per_pass)
    return passes.flat_map(one_pass).skip(first_step % steps_per_pass)


def shuffled(arrays, global_batch_size, seed, first_step=0):
    """Batches of the rows of arrays, in the order of `batches`, endless.

    Args:
        arrays: Nest of NumPy arrays, `[rows, ...]`.
        global_batch_size: Rows of a step, on all replicas together.
        seed: Integer.
        first_step: Step to begin with. Defaults to `0`.

    Returns:
        A `tf.data.Dataset` of nests of tensors, `[rows, ...]`.

    Example:

    ```python
    x, y = np.zeros((5, 2)), np.zeros(5)
    training = shuffled((x, y), global_batch_size=2, seed=0)
    ```
    """
    # Held once, in the host's memory: a constant of the graph may not exceed
    # 2 GB.
    with tf.device("CPU:0"):
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    num_rows = int(tf.nest.flatten(tensors)[0].shape[0])
    order = batches(num_rows, global_batch_size, seed, first_step)

    def take(rows):
        return tf.nest.map_structure(
            lambda tensor: tf.gather(tensor, rows), tensors
        )

    return order.map(take, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
