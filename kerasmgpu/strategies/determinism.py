"""Makes runs of a program equal bit for bit."""

import keras
import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import InputError, checked_arguments, checked_integer


@checked_arguments
def deterministic(seed: int) -> None:
    """Makes runs of the program equal bit for bit, on the same devices.

    Call it first in the program, on every worker of a job. It seeds Python, NumPy,
    TensorFlow and Keras, and turns on TensorFlow's op determinism: kernels sum in
    a fixed order, cuDNN's algorithms are not chosen by their time, and `tf.data`
    keeps the order of its elements. An operation without such a kernel raises
    `UnimplementedError` and names itself.

    What replicas send each other is summed in a fixed order in any case, on the
    same number of replicas. With `jit_compile="auto"` Keras and kerasmgpu leave XLA
    off then, since it would be chosen by its time; `ChooseXla` and
    `micro_batches="auto"` go by time and memory, so give their results instead.

    Args:
        seed: Integer, the seed of all random numbers.

    Raises:
        InputError: If `seed` is no integer of at least 0, or this is called in a
            strategy's scope, where a step may have been traced without it.

    Example:

    ```python
    kerasmgpu.deterministic(seed=7)
    strategy = kerasmgpu.strategy()
    ```
    """
    checked_integer(seed, "seed", 0, 2**32 - 1)
    if is_ours(tf.distribute.get_strategy()):
        raise InputError(
            "deterministic must be called before a model is built. Received: a "
            "call in a strategy's scope; move it to the top of the program"
        )
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
