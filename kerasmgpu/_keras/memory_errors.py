"""Explains a training step that ran out of memory.

`kerasmgpu.memory` knows what was alive, and which settings would fit. It
stands above this room and is found by its name, only then.
"""

import importlib
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu.engine.feeds import Feed

_ADVICE = "kerasmgpu.memory.memory_advice"


def explained(
    error: tf.errors.ResourceExhaustedError, model: keras.Model, feed: Feed
) -> tf.errors.ResourceExhaustedError:
    """Returns the error, with what was alive and what would fit before it.

    Args:
        error: The error of a training step.
        model: The `keras.Model`.
        feed: The `Feed` of its steps.
    """
    advice: Any = importlib.import_module(_ADVICE)
    try:
        text = advice.advice(model, feed)
    except Exception as other:  # The user's error must not be hidden.
        logging.exception("kerasmgpu: memory was not predicted: %s", other)
        return error
    return tf.errors.ResourceExhaustedError(
        error.node_def, error.op, f"{text}\n\nTensorFlow: {error.message}"
    )
