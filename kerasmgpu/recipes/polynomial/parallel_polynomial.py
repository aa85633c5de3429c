"""A Keras model that divides its rows over devices by itself."""

import keras
import tensorflow as tf

from kerasmgpu.strategies import functions


@keras.saving.register_keras_serializable("kerasmgpu")
class Polynomial(keras.Model):
    """w · [x², x, 1] for every row x, with weights w to be trained.

    Keras trains it as any other model: gradients flow through the function
    that is split.

    Args:
        devices: List of device names that the rows are divided over. They are
            not saved with the model: loaded, it runs where Keras runs it.
            Defaults to `None`.

    Input: `[batch, 1]`; output: `[batch, 1]`.

    Example:

    ```python
    model = Polynomial(devices=["GPU:0", "GPU:1"])
    model.compile("adam", "mse")
    model.fit(x, y)
    ```
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
