"""Calls a layer and computes its gradients on one device."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


def call_on_device(
    layer: keras.layers.Layer,
    device: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    """Calls a layer and computes its gradients, both on the device.

    A device scope covers forward operations only: TensorFlow adds gradient
    operations after the scope has ended, and places them on the first GPU.
    Here a separate tape computes the gradients inside the scope.

    Returns:
        The layer's outputs, and their Keras mask.
    """
    arguments = (args, kwargs)
    leaves = tf.nest.flatten(arguments, expand_composites=True)
    places = [i for i, leaf in enumerate(leaves) if _is_differentiable(leaf)]
    structure = masks = None

    @tf.custom_gradient
    def placed(*inputs: Any) -> Any:
        nonlocal structure, masks
        # Persistent, since the caller's tape may be persistent, too.
        with tf.device(device), tf.GradientTape(persistent=True) as tape:
            tape.watch(inputs)
            given = list(leaves)
            for place, value in zip(places, inputs):
                given[place] = value
            given_args, given_kwargs = tf.nest.pack_sequence_as(
                arguments, given, expand_composites=True
            )
            structure = layer(*given_args, **given_kwargs)
            # Masks are attached to tensors, and a custom gradient replaces its
            # output tensors by new ones.
            masks = _MaskOf()(structure)
            outputs = tf.nest.flatten(structure, expand_composites=True)

        def backward(
            *output_gradients: Any, variables: Sequence[Any] = ()
        ) -> Any:
            with tf.device(device):
                gradients = tape.gradient(
                    outputs,
                    [*inputs, *variables],
                    output_gradients=output_gradients,
                )
            if not variables:
                return gradients
            return gradients[: len(inputs)], gradients[len(inputs) :]

        return outputs, backward

    # In the scope as well: TensorFlow passes all inputs and weights of a custom
    # gradient through an `IdentityN`.
    with tf.device(device):
        outputs = placed(*[leaves[place] for place in places])
    outputs = tf.nest.pack_sequence_as(
        structure, outputs, expand_composites=True
    )
    return outputs, masks


class _MaskOf(keras.layers.Layer):
    """Layer that returns the Keras mask of its input, or `None`."""

    def __init__(self) -> None:
        super().__init__(autocast=False)
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        return mask

    def compute_mask(self, inputs: Any, previous_mask: Any) -> None:
        return None


def _is_differentiable(leaf: Any) -> bool:
    return tf.is_tensor(leaf) and (
        leaf.dtype.is_floating or leaf.dtype.is_complex
    )
