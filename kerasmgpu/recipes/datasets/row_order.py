"""The order in which training sees the rows: a function of seed and pass.

`tf.data.Dataset.shuffle` restarts in a resumed run. This order can begin at
any step.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow import Tensor

Dataset: TypeAlias = tf.data.Dataset


def batches(
    num_rows: int, global_batch_size: int, seed: int, first_step: int = 0
) -> Dataset:
    """Endless batches of row numbers, int64 `[rows]`, from a step on.

    Every pass is a permutation of all rows; its last batch may be smaller.
    """

    def one_pass(number: Tensor) -> Dataset:
        order = tf.random.experimental.stateless_shuffle(
            tf.range(num_rows, dtype=tf.int64), seed=[seed, number]
        )
        return Dataset.from_tensor_slices(order).batch(global_batch_size)

    return from_step(first_step, -(-num_rows // global_batch_size), one_pass)


def from_step(
    first_step: int, steps_per_pass: int, one_pass: Callable[[Tensor], Dataset]
) -> Dataset:
    """Endless batches from a step on; `one_pass(k)` returns those of pass k."""
    passes = Dataset.counter(first_step // steps_per_pass)
    return passes.flat_map(one_pass).skip(first_step % steps_per_pass)


def shuffled(
    arrays: Any, global_batch_size: int, seed: int, first_step: int = 0
) -> Dataset:
    """Endless batches of a nest of arrays, in the order of `batches`."""
    # Held once, in the host's memory: a constant of the graph is at most 2 GB.
    with tf.device("CPU:0"):
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    num_rows = int(tf.nest.flatten(tensors)[0].shape[0])

    def take(rows: Tensor) -> Any:
        return tf.nest.map_structure(lambda t: tf.gather(t, rows), tensors)

    return mapped(batches(num_rows, global_batch_size, seed, first_step), take)


def mapped(order: Dataset, element: Callable[[Tensor], Any]) -> Dataset:
    """Applies `element` to batches of row numbers, in parallel; prefetches."""
    return order.map(element, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
