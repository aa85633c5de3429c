"""Gives all workers of a job the same RNG state.

Workers run the same program on the same data, so their random numbers must
agree: the order of a shuffled data set, a split of the data, dropout masks.
Programs that set their seeds agree already; others get the first worker's RNG
state, as if they ran in one process.
"""

import json
import random
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.engine import context
from kerasmgpu.job import workers


def share(strategy: tf.distribute.Strategy) -> None:
    """Copies the first worker's RNG state to every worker; a collective.

    Copies the state of Python and NumPy, and TensorFlow's global seed. If the
    first worker has set no seed for TensorFlow, it draws one.
    """
    if workers.count(strategy) == 1:
        return
    own = json.dumps(_states() if workers.is_first(strategy) else None)
    states = json.loads(workers.broadcast(strategy, own.encode()))
    if not workers.is_first(strategy):
        version, words, gauss = states["python"]
        random.setstate((version, tuple(words), gauss))
        np.random.set_state(tuple(states["numpy"]))
    if states["tensorflow"] != context.global_seed():
        tf.random.set_seed(states["tensorflow"])


def _states() -> dict[str, Any]:
    """Returns this process's RNG state as plain data.

    If TensorFlow has no global seed, draws one, and doesn't set it.
    """
    kind, words, *rest = np.random.get_state()
    seed = context.global_seed()
    if seed is None:
        seed = int(np.random.default_rng().integers(1, 2**31))
    return {
        "python": random.getstate(),
        "numpy": [kind, words.tolist(), *rest],
        "tensorflow": seed,
    }
