"""All workers of a job shuffle, split and draw alike, seeded or not.

Workers run the same program on the same data, so what they draw at random has
to agree: the order of a shuffled data set, a split of the data, masks of
dropout. A program that sets its seeds agrees by itself; one that doesn't gets
the first worker's random states, as if it ran in one process.
"""

import json
import random

import numpy as np
import tensorflow as tf

from kerasmgpu import _keras
from kerasmgpu.job import workers


def share(strategy):
    """Gives every worker the random state of the first.

    Python's and NumPy's states are those of the first worker from here on.
    TensorFlow gets a seed where the first worker has set none.

    Args:
        strategy: The strategy of the job; all workers must call this.
    """
    if workers.count(strategy) == 1:
        return
    own = json.dumps(_states() if workers.is_first(strategy) else None)
    states = json.loads(workers.broadcast(strategy, own.encode()))
    if not workers.is_first(strategy):
        version, words, gauss = states["python"]
        random.setstate((version, tuple(words), gauss))
        np.random.set_state(tuple(states["numpy"]))
    if states["tensorflow"] != _keras.global_seed():
        tf.random.set_seed(states["tensorflow"])


def _states():
    """Random states of this process as plain data."""
    kind, words, *rest = np.random.get_state()
    seed = _keras.global_seed()
    if seed is None:
        seed = int(np.random.default_rng().integers(1, 2**31))
    return {
        "python": random.getstate(),
        "numpy": [kind, words.tolist(), *rest],
        "tensorflow": seed,
    }
