"""Two autoencoders of rows of ratings, as ordinary Keras models.

Both take sparse rows of raw ratings, `[batch, columns]`, in which missing
ratings have no entry, and return a dense predicted rating for every column, on
the rating scale. Rows become dense inside the model, on its device.
"""

from collections.abc import Sequence
from typing import Any

import keras


@keras.saving.register_keras_serializable(package="kerasmgpu")
class TakeOutBiases(keras.layers.Layer):
    """Splits rows of ratings into biases and residuals.

    The mean and the column biases are untrained weights; call `set_biases`.
    A row's bias is the shrunk mean of its residuals, so the model also works
    for rows that it has never seen.

    `shrinkage` is added to the number of ratings in that mean.

    Takes raw ratings, `[batch, columns]`, sparse or dense with 0 for missing.
    Returns two dense tensors of that shape: the residuals (0 where the rating
    is missing), and the ratings that the biases predict.
    """

    def __init__(self, shrinkage: float = 5.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.shrinkage = shrinkage

    def build(self, input_shape: Any) -> None:
        untrained = dict(initializer="zeros", trainable=False)
        self.mean = self.add_weight((), name="mean", **untrained)
        self.column_biases = self.add_weight(
            input_shape[-1:], name="column_biases", **untrained
        )

    def set_biases(self, mean: float, column_biases: Any) -> None:
        """Sets the mean rating (float) and the column biases, `[columns]`."""
        self.mean.assign(mean)
        self.column_biases.assign(column_biases)

    def call(self, inputs: Any) -> tuple[Any, Any]:
        ratings = keras.ops.convert_to_tensor(inputs, sparse=False)
        observed = keras.ops.cast(
            keras.ops.not_equal(ratings, 0), ratings.dtype
        )
        by_column = self.mean + self.column_biases
        rest = (ratings - by_column) * observed
        count = keras.ops.sum(observed, axis=-1, keepdims=True)
        total = keras.ops.sum(rest, axis=-1, keepdims=True)
        row_bias = total / (count + self.shrinkage)
        return (rest - row_bias) * observed, by_column + row_bias

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape, input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "shrinkage": self.shrinkage}


@keras.saving.register_keras_serializable(package="kerasmgpu")
class DenseRows(keras.layers.Layer):
    """Makes sparse rows dense on the device and multiplies them by `scale`."""

    def __init__(self, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def call(self, inputs: Any) -> Any:
        return keras.ops.convert_to_tensor(inputs, sparse=False) * self.scale

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale}


def residual_autoencoder(
    num_columns: int, hidden_units: Sequence[int], weight_penalty: float = 0.0
) -> keras.Model:
    """AutoRec on residuals: biases are subtracted before and added after.

    `columns - hidden units - columns` with sigmoid hidden layers and an
    identity output, as AutoRec (Sedhain et al., WWW 2015). `weight_penalty`
    times the sum of squares of each kernel is added to the loss. Train it on
    `ObservedSquaredError`, and call `set_biases` of the layer named `"biases"`
    before.
    """

    def dense(units: int, activation: str | None, name: str) -> keras.Layer:
        return keras.layers.Dense(
            units,
            activation,
            kernel_regularizer=keras.regularizers.L2(weight_penalty),
            name=name,
        )

    inputs = keras.Input((num_columns,), sparse=True, name="ratings")
    hidden, explained = TakeOutBiases(name="biases")(inputs)
    for number, units in enumerate(hidden_units, 1):
        hidden = dense(units, "sigmoid", f"hidden_{number}")(hidden)
    tastes = dense(num_columns, None, "tastes")(hidden)
    outputs = keras.layers.Add(name="predicted")([explained, tastes])
    return keras.Model(inputs, outputs, name="residual_autoencoder")


def published_autoencoder(
    num_columns: int, hidden_units: Sequence[int], max_rating: float
) -> keras.Model:
    """The published network: every layer sigmoid, normal initialiser.

    Ratings are divided by `max_rating`, missing ones are 0. Train it on
    `WholeRowSquaredError`.
    """

    def dense(units: int, name: str) -> keras.Layer:
        return keras.layers.Dense(
            units, "sigmoid", kernel_initializer="random_normal", name=name
        )

    inputs = keras.Input((num_columns,), sparse=True, name="ratings")
    hidden = DenseRows(1.0 / max_rating, name="dense_rows")(inputs)
    for number, units in enumerate(hidden_units, 1):
        hidden = dense(units, f"hidden_{number}")(hidden)
    shares = dense(num_columns, "shares")(hidden)
    outputs = keras.layers.Rescaling(max_rating, name="predicted")(shares)
    return keras.Model(inputs, outputs, name="published_autoencoder")
