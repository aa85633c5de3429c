"""Explains a training step that ran out of memory.

`kerasmgpu.memory` predicts what was alive, and which settings would fit. It
imports this package, so it is imported by name, and only when it is needed.
"""

import importlib
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu.engine.feeds import Feed

_ADVICE = "kerasmgpu.memory.memory_advice"
_FIRST_PARTS = "kerasmgpu.memory.first_parts"


def explained(
    error: tf.errors.ResourceExhaustedError, model: keras.Model, feed: Feed
) -> tf.errors.ResourceExhaustedError:
    """Returns the error with more text: what was alive, and what would fit.

    If nothing can be predicted, logs why and returns the error unchanged.
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


def share_in_use(strategy: Any) -> float:
    """Returns the share of its GPU's memory that a replica has had in use.

    The largest of this process's replicas, 0 to 1; 0 without GPUs, and where a
    GPU's memory is unknown.
    """
    names = [name for name in strategy.extended.worker_devices if "GPU" in name]
    advice: Any = importlib.import_module(_ADVICE)
    limit = advice.device_bytes(strategy) if names else None
    if not limit:
        return 0.0
    peaks = [
        tf.config.experimental.get_memory_info(
            "GPU:" + name.rpartition(":")[2]
        )["peak"]
        for name in names
    ]
    return float(max(peaks)) / limit


def first_micro_batches(model: keras.Model, feed: Feed) -> int:
    """Returns the micro-batches that `micro_batches="auto"` begins with.

    Returns 1 if nothing can be predicted.
    """
    if not model.built:  # The prediction would create its variables.
        return 1
    first_parts: Any = importlib.import_module(_FIRST_PARTS)
    try:
        return int(first_parts.first_micro_batches(model, feed))
    except Exception as other:  # Training can do without it.
        logging.exception("kerasmgpu: memory was not predicted: %s", other)
        return 1
