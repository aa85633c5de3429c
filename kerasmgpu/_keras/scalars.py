"""Variables with several copies as Python's numbers and NumPy's arrays.

`int(model.optimizer.iterations)` in a callback, say. TensorFlow's plain
variables are these things. Its variables with a copy per replica have no
`__int__` or `__float__`, and where a strategy's scope is entered scalars are no
arrays. (They are always true, too, which TensorFlow itself relies on.) Checked
on TensorFlow 2.18 and 2.21.
"""

import numpy as np
import tensorflow as tf
from tensorflow.python.distribute.values import DistributedVariable

from kerasmgpu._keras.seams import attribute


def _through(kind):
    """A method that makes a Python number of a variable's value."""

    def convert(self):
        return kind(tf.convert_to_tensor(self))

    return convert


def _array(self, dtype=None, copy=None):
    # NumPy 1 knows no `copy=None`; what is made here is nobody else's.
    del copy
    return np.array(tf.convert_to_tensor(self), dtype=dtype)


for _kind in (int, float, complex):
    attribute(DistributedVariable, f"__{_kind.__name__}__", _through(_kind))
attribute(DistributedVariable, "__array__", _array)
