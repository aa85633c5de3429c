"""Checks that data have the targets that a model's loss needs."""

from typing import Any

import keras

from kerasmgpu._keras.versions import TensorFlowTrainer, Trainer
from kerasmgpu.errors import InputError


def require(model: keras.Model, y: Any, name: str) -> None:
    """Raises `InputError` if the loss compares with targets, and there are none.

    A model with a step or a loss computation of its own may need none.

    Args:
        y: Nest of the targets, or `None`.
        name: String, the data in the message.
    """
    kind: Any = type(model)
    tensorflow: Any = TensorFlowTrainer
    trainer: Any = Trainer
    is_keras_own = (
        getattr(kind, "train_step", None) is tensorflow.train_step
        and getattr(kind, "compute_loss", None) is trainer.compute_loss
    )
    if y is None and is_keras_own and getattr(model, "loss", None) is not None:
        raise InputError(
            f"{name} must have targets, as (x, y), for the loss of the model. "
            f"Received: {name} without y, for model {model.name!r}"
        )
