"""Models whose memory is predicted and measured."""

import keras
import numpy as np

from benchmarks.exactness.registry import cases


def dense(wrapped=lambda layer: layer):
    """Six blocks of two dense layers.

    Args:
        wrapped: Function of a block that returns what is called instead.
    """
    _set_precision("float32")
    inputs = x = keras.Input((256,))
    for _ in range(3):
        x = wrapped(Block())(x)
    model = keras.Model(inputs, keras.layers.Dense(10)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"], jit_compile=False)
    return model, (np.zeros((32, 256), "float32"), np.zeros(32, "int32"))


class Block(keras.layers.Layer):
    """Four dense layers; computed again in the backward pass, if asked for.

    Args:
        again: Whether `keras.remat` recomputes it.
    """

    def __init__(self, again=False):
        super().__init__()
        self.inner = [keras.layers.Dense(256, "gelu") for _ in range(4)]
        self.again = again

    def build(self, shape):
        for layer in self.inner:
            layer.build(shape)

    def call(self, x):
        def run(x):
            for layer in self.inner:
                x = layer(x)
            return x

        return keras.remat(run)(x) if self.again else run(x)


def dense_again():
    """The same, each block computed again in the backward pass."""
    return dense(lambda block: Block(again=True))


def _of_table(model):
    """A model of the table of models, with arrays."""

    def make():
        _set_precision(model.precision)
        made = model.make()
        x, y = made.fit["x"], made.fit.get("y")
        return made.model, (x,) if y is None else (x, y)

    return make


def _set_precision(name):
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)


PROGRAMS = {
    "dense": dense,
    "dense that is computed again": dense_again,
    "dense with recompute": dense,
    **{name: _of_table(model) for name, model in cases("models").items()},
}

RECOMPUTES = {"dense with recompute": "elementwise"}
"""The argument `recompute` of programs that have one."""
