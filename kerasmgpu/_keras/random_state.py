"""Reads and restores the RNG state of all global generators of a program.

Not included: the state in the kernels of stateful ops (`tf.random.uniform`),
which can't be read, and `tf.random.Generator`s and layers' `SeedGenerator`s,
which are variables.
"""

import random
from typing import Any

import numpy as np
from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from kerasmgpu.engine import context

_KERAS = "global_seed_generator"


def read() -> dict[str, Any]:
    """Returns the RNG state of Python, NumPy, TensorFlow and Keras.

    Returns:
        Dictionary of plain data with the keys `"python"`, `"numpy"`,
        `"tensorflow"` and `"keras"`; the last two are `None` if the program
        has no such generator.
    """
    operation_seeds = context.operation_seeds()
    keras_generator = global_state.get_global_attribute(_KERAS)
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "tensorflow": operation_seeds and operation_seeds.getstate(),
        "keras": keras_generator and keras_generator.state.numpy(),
    }


def restore(state: dict[str, Any], python: bool = True) -> None:
    """Restores RNG state.

    Args:
        state: Return value of `read`.
        python: Boolean, whether to include the state of Python and NumPy.
    """
    if python:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
    operation_seeds = context.operation_seeds()
    if state["tensorflow"] is not None and operation_seeds is not None:
        operation_seeds.setstate(state["tensorflow"])
    if state["keras"] is None:
        # Keras makes it on first use, with a seed of Python's generator.
        global_state.set_global_attribute(_KERAS, None)
    else:
        seed_generator.global_seed_generator().state.assign(state["keras"])
