"""The state of all global random number generators of a program.

The kernels of `tf.random.uniform` and its like keep theirs to themselves;
`tf.random.Generator`s and Keras's `SeedGenerator`s that layers own are
variables.
"""

import random

import numpy as np
from keras.src.backend.common import global_state
from keras.src.random import seed_generator
from tensorflow.python.eager import context

_KERAS = "global_seed_generator"


def read():
    """State of the generators of Python, NumPy, TensorFlow and Keras.

    Returns:
        Plain data: `{"python", "numpy", "tensorflow", "keras"}`; the last two
        are `None` where the program has no such generator.
    """
    operation_seeds = getattr(context.context(), "_rng", None)
    keras_generator = global_state.get_global_attribute(_KERAS)
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "tensorflow": operation_seeds and operation_seeds.getstate(),
        "keras": keras_generator and keras_generator.state.numpy(),
    }


def restore(state, python=True):
    """Puts generators back.

    Args:
        state: What `read` returned.
        python: Boolean, whether those of Python and NumPy too.
    """
    if python:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
    operation_seeds = getattr(context.context(), "_rng", None)
    if state["tensorflow"] is not None and operation_seeds is not None:
        operation_seeds.setstate(state["tensorflow"])
    if state["keras"] is not None:
        seed_generator.global_seed_generator().state.assign(state["keras"])
