"""`tf.random.Generator`s made in a strategy's scope draw one device's numbers.

TensorFlow adds the replica's index to the key, so that replicas draw different
numbers. Our steps are traced as on one device, where the key is unchanged.
"""

from typing import Any

import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam


@seam(tf.random.Generator, "_preprocess_key")
def _preprocess_key(original: Original, self: Any, key: Any) -> Any:
    strategy = self._distribution_strategy
    if is_ours(strategy) and strategy.extended.is_one_device:
        return key
    return original(self, key)
