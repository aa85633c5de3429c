"""`tf.random.Generator`s that were made in a strategy's scope.

TensorFlow makes each replica's numbers others, by the replica's number in the
key. A step of ours runs as on one device, where nothing is added to the key.
"""

import tensorflow as tf

from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam


@seam(tf.random.Generator, "_preprocess_key")
def _preprocess_key(original, self, key):
    strategy = self._distribution_strategy
    if is_ours(strategy) and strategy.extended.is_one_device:
        return key
    return original(self, key)
