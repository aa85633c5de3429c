"""Sliced assignment to a distributed variable: `v[1:3].assign(…)`.

TensorFlow slices the value of one copy. In a cross-replica context the slice
has no `assign`; outside of the scope `assign` updates one copy only. Here it
updates all copies. Checked on TensorFlow 2.18 and 2.21.
"""

from typing import Any

import tensorflow as tf

from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.private_names import DistributedVariable
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.one_device import is_sum


@seam(DistributedVariable, "__getitem__")
def _getitem(original: Original, self: Any, key: Any) -> Any:
    in_replica = not tf.distribute.in_cross_replica_context()
    if (
        (in_replica and tf.distribute.has_strategy())
        or not is_ours(self.distribute_strategy)
        or is_sum(self)
    ):
        return original(self, key)
    return tf.Variable.__getitem__(self, key)
