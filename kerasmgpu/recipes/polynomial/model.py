"""A Keras model that splits its rows over devices."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu.strategies import functions


@keras.saving.register_keras_serializable("kerasmgpu")
class Polynomial(keras.Model):
    """w · [x², x, 1] for every row x, with trainable weights w.

    `devices` are the names of the devices that share the rows. The names are not
    saved: a loaded model runs where Keras places it. Input and output:
    `[batch, 1]`.
    """

    def __init__(
        self, devices: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.w = self.add_weight(
            shape=(3, 1), initializer="random_normal", name="w"
        )
        self._predict = self.polynomial
        if devices is not None:
            self._predict = functions.make_parallel(
                self.polynomial, devices=devices
            )

    def polynomial(self, x: tf.Tensor) -> tf.Tensor:
        powers = tf.concat([x**2, x, tf.ones_like(x)], axis=1)
        return powers @ self.w

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self._predict(x=x)
