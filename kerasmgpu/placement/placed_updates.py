"""Optimizer updates on each weight's device."""

import functools
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

# Optimizer settings with which Keras changes gradients before applying them.
_CHANGES_GRADIENTS = (
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "gradient_accumulation_steps",
    "loss_scale_factor",
)


def place_updates(
    optimizer: keras.optimizers.Optimizer,
) -> keras.optimizers.Optimizer:
    """Makes an optimizer update every weight on the weight's device.

    By default Keras creates the slots of all weights and computes all updates
    on one device, and copies gradients and weights there and back. Clipping,
    gradient accumulation and loss scaling still copy the gradients there.

    Args:
        optimizer: `keras.optimizers.Optimizer`, before its first step; with
            loss scaling, the optimizer inside the `LossScaleOptimizer`. It is
            changed in place. Loading a model loses the change: call
            `place_updates(model.optimizer)` again.

    Returns:
        The same optimizer.

    Example:

    ```python
    model.compile(place_updates(keras.optimizers.Adam(1e-3)), "mse")
    ```
    """
    add_slot = optimizer.add_variable_from_reference
    apply = optimizer.apply
    update = optimizer.update_step
    as_handed_in = {}

    @functools.wraps(add_slot)
    def placed_add_slot(
        reference_variable: keras.Variable, *args: Any, **kwargs: Any
    ) -> keras.Variable:
        # Keras creates slots on the weight's device, except while it traces.
        with tf.init_scope():
            return add_slot(reference_variable, *args, **kwargs)

    # Keras passes all gradients through one all-reduce before the updates.
    # Without a strategy it keeps their values but copies them to one device. If
    # no setting changes the gradients either, the updates use the originals.
    @functools.wraps(apply)
    def placed_apply(
        grads: Iterable[Any],
        trainable_variables: Iterable[keras.Variable] | None = None,
    ) -> Any:
        changed = any(
            getattr(optimizer, name, None) for name in _CHANGES_GRADIENTS
        )
        if trainable_variables is not None and not changed:
            trainable_variables = list(trainable_variables)
            for gradient, variable in zip(grads, trainable_variables):
                as_handed_in[_tensorflow_variable(variable).ref()] = gradient
        try:
            return apply(grads, trainable_variables)
        finally:
            as_handed_in.clear()

    @functools.wraps(update)
    def placed_update(
        gradient: Any, variable: keras.Variable, learning_rate: Any
    ) -> Any:
        key = _tensorflow_variable(variable).ref()
        with tf.device(device_of(variable)):
            return update(
                as_handed_in.get(key, gradient), variable, learning_rate
            )

    optimizer.add_variable_from_reference = placed_add_slot
    optimizer.apply = placed_apply
    optimizer.update_step = placed_update
    return optimizer


def device_of(variable: keras.Variable | tf.Variable) -> str:
    """Returns the device of a Keras or TensorFlow variable, as `"GPU:1"`."""
    return _tensorflow_variable(variable).device.rpartition("device:")[2]


def _tensorflow_variable(variable: keras.Variable | tf.Variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable
