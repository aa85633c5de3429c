"""Layouts of a batch beyond its rows: tokens, rows of images, columns.

A key of a `LayoutMap` such as `"tokens/output"` lays out the input `tokens` of a
model. Keras asks for layouts of what layers return when they are called, and
never calls an `InputLayer`. A distribution of the user's own can also lay out all
tensors of a batch, by its `get_data_layout`.

Checked on Keras 3.10 and 3.15.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.src.models.functional import Functional

from kerasmgpu._keras.distribution_backend import (
    output_path,
    placed,
    sharding_of,
)
from kerasmgpu.engine.seams import Original, seam


@seam(Functional, "_standardize_inputs")
def _standardize_inputs(original: Original, self: Any, inputs: Any) -> Any:
    tensors = original(self, inputs)
    distribution = keras.distribution.distribution()
    if distribution is None:
        return tensors
    return [
        _of_input(distribution, one._keras_history.operation, tensor)
        for one, tensor in zip(self._inputs, tensors)
    ]


def _of_input(distribution: Any, layer: keras.Layer, tensor: Any) -> Any:
    path = output_path(layer)
    layout = distribution.get_tensor_layout(path)
    # A pattern for outputs of other ranks can match an input, too.
    is_meant = path in list(getattr(distribution, "_layout_map", ()))
    rank = len(getattr(tensor, "shape", ()))
    if not layout or not (is_meant or len(layout.axes) <= rank):
        return tensor
    return placed(tensor, layout.axes, f"the input {layer.name!r}")


def named_inputs(model: keras.Model) -> list[tuple[str, Any]]:
    """Returns the key of each input in a `LayoutMap`, and its `KerasTensor`.

    They are none for a model that isn't made of layers, but of code.
    """
    functional = getattr(model, "_functional", model)  # That of a `Sequential`.
    if not isinstance(functional, Functional):
        return []
    return [
        (output_path(one._keras_history.operation), one)
        for one in functional._inputs
    ]


def lays_out_batches(distribution: Any) -> bool:
    """Whether a distribution's own `get_data_layout` may divide more than rows."""
    kinds = keras.distribution.DataParallel, keras.distribution.ModelParallel
    own = type(distribution).get_data_layout
    return own not in [kind.get_data_layout for kind in kinds]


def of_batches(
    distribution: Any, step: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns a step that first lays out the tensors of its batch."""

    def laid_out(tensor: Any) -> Any:
        if not isinstance(tensor, tf.Tensor) or not tensor.shape.rank:
            return tensor
        shape = tuple(tensor.shape)
        axes = sharding_of(distribution.get_data_layout(shape)).spec
        return placed(
            tensor, axes[: len(shape)], f"a tensor {shape} of a batch"
        )

    @functools.wraps(step)
    def with_layouts(*batch: Any) -> Any:
        return step(*keras.tree.map_structure(laid_out, batch))

    return with_layouts
