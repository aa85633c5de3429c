"""Losses and metrics over rows of ratings, known and missing.

A row holds the ratings of one user (or of one item) over all columns, as a
`tf.SparseTensor` of shape `[batch, columns]`; missing ratings have no entry.
Predictions are dense, `[batch, columns]`, on the rating scale. Only the
observed entries of the predictions are looked up: nothing here makes a dense
copy of the targets.
"""

from typing import Any

import keras
import tensorflow as tf


def observed_errors(
    y_true: tf.Tensor | tf.SparseTensor, y_pred: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Looks up the predictions of the observed ratings.

    Returns three tensors `[observed]`: row numbers, ratings and predictions.
    In dense ratings, 0 means missing.
    """
    if not isinstance(y_true, tf.SparseTensor):
        y_true = tf.sparse.from_dense(y_true)
    predictions = tf.gather_nd(y_pred, y_true.indices)
    ratings = tf.cast(y_true.values, predictions.dtype)
    return y_true.indices[:, 0], ratings, predictions


def whole_row_means(
    y_true: Any, y_pred: tf.Tensor, max_rating: float
) -> tf.Tensor:
    """Mean squared error over all columns of each row, `[batch]`.

    Ratings and predictions are divided by `max_rating`, and the target of a
    missing rating is 0. Targets stay sparse: the sum over missing entries is
    that over all entries minus that over observed ones.
    """
    rows, ratings, predictions = observed_errors(y_true, y_pred)
    correction = tf.square(predictions - ratings) - tf.square(predictions)
    num_rows, num_columns = tf.unstack(tf.shape(y_pred))
    squares = tf.reduce_sum(tf.square(y_pred), axis=-1)
    squares += tf.math.unsorted_segment_sum(correction, rows, num_rows)
    return squares / (tf.cast(num_columns, y_pred.dtype) * max_rating**2)


@keras.saving.register_keras_serializable(package="kerasmgpu")
class ObservedSquaredError(keras.losses.Loss):
    """Sum of squared errors over the observed ratings of a row.

    The data term of AutoRec (Sedhain et al., WWW 2015, equation 2); its second
    term, the penalty on the weights, is the layers' own regulariser.
    """

    def call(self, y_true: Any, y_pred: tf.Tensor) -> tf.Tensor:
        rows, ratings, predictions = observed_errors(y_true, y_pred)
        squares = tf.square(predictions - ratings)
        num_rows = tf.shape(y_pred)[0]
        return tf.math.unsorted_segment_sum(squares, rows, num_rows)


@keras.saving.register_keras_serializable(package="kerasmgpu")
class WholeRowSquaredError(keras.losses.Loss):
    """Mean squared error over the whole row on [0, 1]; missing ratings are 0.

    The loss of the published experiment. It rewards predicting 0 for missing
    ratings, so it can't be compared with an error over observed ratings.
    """

    def __init__(self, max_rating: float = 5.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_rating = max_rating

    def call(self, y_true: Any, y_pred: tf.Tensor) -> tf.Tensor:
        return whole_row_means(y_true, y_pred, self.max_rating)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_rating": self.max_rating}


@keras.saving.register_keras_serializable(package="kerasmgpu")
class ObservedRMSE(keras.metrics.Mean):
    """Root of the mean squared error over the observed ratings.

    On the scale of the ratings; predictions are clipped to `min_rating` and
    `max_rating`.
    """

    def __init__(
        self,
        min_rating: float | None = None,
        max_rating: float | None = None,
        name: str = "rmse",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.min_rating = min_rating
        self.max_rating = max_rating

    def update_state(
        self, y_true: Any, y_pred: tf.Tensor, sample_weight: None = None
    ) -> None:
        _, ratings, predictions = observed_errors(y_true, y_pred)
        if self.min_rating is not None:
            predictions = tf.maximum(predictions, self.min_rating)
        if self.max_rating is not None:
            predictions = tf.minimum(predictions, self.max_rating)
        super().update_state(tf.square(predictions - ratings))

    def result(self) -> tf.Tensor:
        return keras.ops.sqrt(super().result())

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "min_rating": self.min_rating,
            "max_rating": self.max_rating,
        }


@keras.saving.register_keras_serializable(package="kerasmgpu")
class WholeRowLoss(keras.metrics.Mean):
    """Mean over rows of `WholeRowSquaredError`, whatever the training loss."""

    def __init__(
        self,
        max_rating: float = 5.0,
        name: str = "whole_row_loss",
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.max_rating = max_rating

    def update_state(
        self, y_true: Any, y_pred: tf.Tensor, sample_weight: None = None
    ) -> None:
        super().update_state(whole_row_means(y_true, y_pred, self.max_rating))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "max_rating": self.max_rating}
