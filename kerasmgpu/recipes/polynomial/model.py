"""A Keras model that divides its rows over devices by itself."""

import keras
import tensorflow as tf

from kerasmgpu.strategies import functions


@keras.saving.register_keras_serializable("kerasmgpu")
class Polynomial(keras.Model):
    """w · [x², x, 1] for every row x, with weights w to be trained.

    Args:
        devices: Names that the rows are divided over, or `None`. They are not
            saved with the model: loaded, it runs where Keras runs it.

    Input: `[batch, 1]`; output: `[batch, 1]`.
    """

    def __init__(self, devices=None, **kwargs):
        super().__init__(**kwargs)
        self.w = self.add_weight(
            shape=(3, 1), initializer="random_normal", name="w"
        )
        self._predict = self.polynomial
        if devices is not None:
            self._predict = functions.make_parallel(
                self.polynomial, devices=devices
            )

    def polynomial(self, x):
        """The polynomial of every row of `x`."""
        powers = tf.concat([x**2, x, tf.ones_like(x)], axis=1)
        return powers @ self.w

    def call(self, x):
        return self._predict(x=x)
