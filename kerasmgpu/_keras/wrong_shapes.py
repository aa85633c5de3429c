"""What is said of batches whose shape doesn't fit the model."""

import re
from typing import Any

import tensorflow as tf

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CALLED = "Exception encountered when calling"
_WHERE = re.compile(r" for '.*", re.DOTALL)


def in_one_line(error: Exception) -> str:
    """Returns the line of Keras's or TensorFlow's error that says what is wrong.

    Keras puts the layer above it, and the arguments of the call below.
    """
    lines = _COLOURS.sub("", str(error)).splitlines()
    told = [line for line in lines if line and not line.startswith(_CALLED)]
    line = told[0] if told else type(error).__name__
    return _WHERE.sub("", line).rstrip(".")


def described(batch: Any) -> str:
    """Returns the shapes of a batch's leaves.

    Args:
        batch: Nest of `tf.TypeSpec`s.
    """
    leaves = tf.nest.flatten(batch)
    shapes = [tuple(one.shape) for one in leaves if hasattr(one, "shape")]
    return f"batches of shape {', '.join(map(str, shapes))}"
