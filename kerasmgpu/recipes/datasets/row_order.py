"""The random split of rows, and the order in which training reads them.

Both are functions of the seed. `tf.data.Dataset.shuffle` restarts in a resumed
run; this order can begin at any step.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kerasmgpu.errors import InputError

if TYPE_CHECKING:
    from tensorflow import Tensor
    from tensorflow.data import Dataset


def held_out_rows(
    num_examples: int, held_out: float, seed: int, what: str, source: str = ""
) -> np.ndarray:
    """Draws the rows to hold out: a bool array, `[num_examples]`.

    `held_out` is a fraction above 0 and below 1; each side gets at least one
    example. Errors call the examples `what` (`"ratings"`) of `source`.
    """
    if num_examples < 2:
        raise InputError(
            f"Holding out takes at least two {what}. Received: "
            f"{source or num_examples}"
        )
    count = min(max(round(held_out * num_examples), 1), num_examples - 1)
    # In place, as int32: half the memory of a `permutation`.
    order = np.arange(num_examples, dtype=np.int32)
    np.random.default_rng(seed).shuffle(order)
    is_held_out = np.zeros(num_examples, bool)
    is_held_out[order[:count]] = True
    return is_held_out


def batches(
    num_rows: int, global_batch_size: int, seed: int, first_step: int = 0
) -> "Dataset":
    """Endless batches of row numbers, int64 `[rows]`, from a step on.

    Every pass is a permutation of all rows; its last batch may be smaller.
    """
    import tensorflow as tf

    def one_pass(number: "Tensor") -> "Dataset":
        order = tf.random.experimental.stateless_shuffle(
            tf.range(num_rows, dtype=tf.int64), seed=[seed, number]
        )
        return tf.data.Dataset.from_tensor_slices(order).batch(
            global_batch_size
        )

    return from_step(first_step, -(-num_rows // global_batch_size), one_pass)


def from_step(
    first_step: int,
    steps_per_pass: int,
    one_pass: Callable[["Tensor"], "Dataset"],
) -> "Dataset":
    """Endless batches from a step on; `one_pass(k)` returns those of pass k."""
    import tensorflow as tf

    passes = tf.data.Dataset.counter(first_step // steps_per_pass)
    return passes.flat_map(one_pass).skip(first_step % steps_per_pass)


def shuffled(
    arrays: Any, global_batch_size: int, seed: int, first_step: int = 0
) -> "Dataset":
    """Endless batches of a nest of arrays, in the order of `batches`."""
    import tensorflow as tf

    # Held once, in the host's memory: a constant of the graph is at most 2 GB.
    with tf.device("CPU:0"):
        tensors = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    num_rows = int(tf.nest.flatten(tensors)[0].shape[0])

    def take(rows: "Tensor") -> Any:
        return tf.nest.map_structure(lambda t: tf.gather(t, rows), tensors)

    return mapped(batches(num_rows, global_batch_size, seed, first_step), take)


def mapped(order: "Dataset", element: Callable[["Tensor"], Any]) -> "Dataset":
    """Applies `element` to batches of row numbers, in parallel; prefetches."""
    import tensorflow as tf

    return order.map(element, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
