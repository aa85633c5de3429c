"""Moves weights, and what layers give, by some units in the last place.

That is what sums in another order could do to a run on one device. Outputs are
moved at every step, each element by itself: rows that give the same numbers on
one device, as where a whole layer of rectifiers gives 0, don't on replicas, so an
accuracy may take either of two equal scores for the larger one.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu.distances import nudged


def nudged_weights(
    model: keras.Model, arrays: list[np.ndarray], size: float, seed: int
) -> list[np.ndarray]:
    """Returns a model's variables, trainable ones moved by `size`, relatively."""
    random = np.random.default_rng(seed)
    trainable = {id(one) for one in model.trainable_variables}

    return [
        nudged(array, size, random)
        if id(variable) in trainable and array.dtype.kind == "f"
        else array
        for variable, array in zip(model.variables, arrays)
    ]


def nudge_outputs(
    layers: Iterable[keras.layers.Layer], size: float, seed: int
) -> None:
    """Makes layers, except models, move their outputs by `size`, relatively."""
    for number, layer in enumerate(layers):
        if not isinstance(layer, keras.Model):
            layer.call = _nudging(layer.call, size, (seed, number))


def _nudging(
    call: Callable[..., Any], size: float, seed: tuple[int, int]
) -> Callable[..., Any]:
    def nudged(value: Any) -> Any:
        if not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            return value
        signs = tf.random.stateless_uniform(
            tf.shape(value), seed, 0, 2, tf.int32
        )
        moved = value * (1 + size * tf.cast(2 * signs - 1, value.dtype))
        # Integers are exact, and may be numbers of rows in a table.
        return tf.where(value == tf.round(value), value, moved)

    @functools.wraps(call)
    def nudging(*args: Any, **kwargs: Any) -> Any:
        return tf.nest.map_structure(nudged, call(*args, **kwargs))

    return nudging
