"""The float types in which a model computes."""

import keras

FLOATS = ("bfloat16", "float16", "float32", "float64")
"""Float types, from the least precise to the most precise one."""


def dtype_of(model: keras.Model) -> str:
    """Returns the least precise float type that a layer computes in."""
    used = {layer.compute_dtype for layer in model.layers}
    return next((name for name in FLOATS if name in used), "float32")
