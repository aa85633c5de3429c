"""`keras.remat` and `keras.RematScope` in steps of our strategies.

Keras's own (3.10 to 3.15, `tf.recompute_grad`) calls a layer once more in the
backward pass: it draws other random numbers, assigns variables again, loses
added losses, masks and `training=`, and refuses composite tensors. Here a layer
is called once. Its operations are marked, and the backward pass of the traced
step runs copies of those without state; see `partitioner/step/recompute.py`.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras.versions import tensorflow_core
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.partitioner.runtime.regions import region

_OF_ALL = ("full", "larger_than")
"""Modes of a `keras.RematScope` that hold for all layers made in it."""


@seam(tensorflow_core, "remat")
def _remat(original: Original, f: Callable[..., Any]) -> Callable[..., Any]:
    kerass = original(f)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_ours(tf.distribute.get_strategy()):
            return kerass(*args, **kwargs)
        with region():
            return f(*args, **kwargs)

    return call


@seam(keras.Layer, "rematerialized_call")
def _rematerialized_call(
    original: Original, self: Any, call: Any, *args: Any, **kwargs: Any
) -> Any:
    """Calls compiled models once, and lets layers tell the sizes of outputs.

    To compute all of a step's model again, at once, would free nothing. For
    `"larger_than"` Keras passes layers tensors where they expect symbolic ones.
    """
    if not is_ours(tf.distribute.get_strategy()):
        return original(self, call, *args, **kwargs)
    if getattr(self, "compiled", False) and self._remat_mode.mode in _OF_ALL:
        return call
    args, kwargs = keras.tree.map_structure(_symbolic, (args, kwargs))
    return original(self, call, *args, **kwargs)


def _symbolic(leaf: Any) -> Any:
    if not isinstance(leaf, (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)):
        return leaf
    dtype = keras.backend.standardize_dtype(leaf.dtype)
    is_sparse = isinstance(leaf, tf.SparseTensor)
    return keras.KerasTensor(leaf.shape, dtype, sparse=is_sparse)
