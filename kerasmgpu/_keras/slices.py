"""Parts of a variable with several copies that are assigned: `v[1:3].assign(…)`.

TensorFlow slices the value of one copy. Where no replica runs, what is assigned
to a part is lost in a strategy's scope (there is no `assign`), and behind it
reaches one copy only. Here it reaches all. Checked on TensorFlow 2.18 and 2.21.
"""

import tensorflow as tf
from tensorflow.python.distribute.values import DistributedVariable

from kerasmgpu._keras.scope import is_ours
from kerasmgpu._keras.seams import seam
from kerasmgpu.partitioner.one_device import is_sum


@seam(DistributedVariable, "__getitem__")
def _getitem(original, self, key):
    in_replica = not tf.distribute.in_cross_replica_context()
    if (
        (in_replica and tf.distribute.has_strategy())
        or not is_ours(self.distribute_strategy)
        or is_sum(self)
    ):
        return original(self, key)
    return tf.Variable.__getitem__(self, key)
