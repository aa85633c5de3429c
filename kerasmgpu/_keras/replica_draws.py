"""Draws without a seed in `strategy.run`, by the generator of its caller.

TensorFlow runs a function in a thread for each replica, anew at each call, and
Keras keeps the generator of `keras.random`'s draws without a seed by thread. So
each thread would make a generator: of other numbers than one device draws, and
once more in each trace of a `tf.function`, which TensorFlow refuses. Checked on
Keras 3.10 and 3.15, TensorFlow 2.18 and 2.21.
"""

import threading
from typing import Any

from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.private_names import MirroredReplicaThread
from kerasmgpu.engine.seams import Original, seam

_STATE = "_kerasmgpu_state"
"""Attribute of a replica's thread: Keras's global state in the caller's."""


@seam(MirroredReplicaThread, "__init__")
def _init(
    original: Original, self: Any, distribution: Any, *args: Any, **kwargs: Any
) -> None:
    original(self, distribution, *args, **kwargs)
    if is_ours(distribution):
        state = vars(global_state.GLOBAL_STATE_TRACKER)
        setattr(self, _STATE, state)


@seam(seed_generator, "global_seed_generator")
def _global_seed_generator(original: Original) -> Any:
    state = getattr(threading.current_thread(), _STATE, None)
    if state is None:
        return original()
    name = seed_generator.GLOBAL_SEED_GENERATOR
    if state.get(name) is None:
        state[name] = original()
    return state[name]
