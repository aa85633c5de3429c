"""Models whose memory is predicted and measured."""

import keras

from tests.models.all import MODELS
from tests.models.registry import Model


def _of_table(model: Model):
    """A model of `tests.models`, with arrays."""

    def make():
        keras.config.set_floatx(model.precision)
        keras.config.set_dtype_policy(model.precision)
        made = model.make()
        x, y = made.fit["x"], made.fit.get("y")
        return made.model, (x,) if y is None else (x, y)

    return make


PROGRAMS = {name: _of_table(model) for name, model in MODELS.items()}


def dense():
    """Six dense layers."""
    import numpy as np

    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")
    model = keras.Sequential(
        [
            keras.Input((256,)),
            *[keras.layers.Dense(256, "relu") for _ in range(6)],
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model, (np.zeros((32, 256), "float32"), np.zeros(32, "int32"))


PROGRAMS["dense"] = dense
