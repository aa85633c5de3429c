"""Loss and metrics of rating rows: what is known, and what is missing.

A row holds the ratings of one user (or of one item) over all columns, as a
`tf.SparseTensor` of shape `[batch, columns]`; a missing rating is no entry.
Predictions are dense, `[batch, columns]`, on the rating scale. Only the
observed entries of the predictions are looked up: nothing here makes a dense
copy of the targets.
"""

import keras
import tensorflow as tf


def observed_errors(y_true, y_pred):
    """Looks up the predictions of the observed ratings.

    Args:
        y_true: Ratings, `[batch, columns]`; a `tf.SparseTensor`, or a dense
            tensor in which 0 means missing.
        y_pred: Predicted ratings, dense, `[batch, columns]`.

    Returns:
        Three tensors of shape `[observed]`: the row number, the rating and
        the prediction of every observed entry.
    """
    if not isinstance(y_true, tf.SparseTensor):
        y_true = tf.sparse.from_dense(y_true)
    predictions = tf.gather_nd(y_pred, y_true.indices)
    ratings = tf.cast(y_true.values, predictions.dtype)
    return y_true.indices[:, 0], ratings, predictions


def observed_squares(y_true, y_pred):
    """Sum of squared errors over the observed ratings of each row, `[batch]`."""
    rows, ratings, predictions = observed_errors(y_true, y_pred)
    return tf.math.unsorted_segment_sum(
        tf.square(predictions - ratings), rows, tf.shape(y_pred)[0]
    )


def whole_row_means(y_true, y_pred, max_rating):
    """Mean squared error over all columns of each row, `[batch]`.

    Ratings and predictions are divided by `max_rating`; the target of a
    missing rating is 0. The missing entries are all entries less the observed
    ones, so that the targets stay sparse.
    """
    rows, ratings, predictions = observed_errors(y_true, y_pred)
    correction = tf.square(predictions - ratings) - tf.square(predictions)
    squares = tf.reduce_sum(tf.square(y_pred), axis=-1)
    squares += tf.math.unsorted_segment_sum(
        correction, rows, tf.shape(y_pred)[0]
    )
    columns = tf.cast(tf.shape(y_pred)[-1], y_pred.dtype)
    return squares / (columns * max_rating**2)


@keras.saving.register_keras_serializable(package="kerasmgpu")
class ObservedSquaredError(keras.losses.Loss):
    """Sum of squared errors over the observed ratings of a row.

    The data term of AutoRec (Sedhain et al., WWW 2015, equation 2); its second
    term, the penalty on the weights, is the layers' own regulariser.

    Example:

    ```python
    ratings = tf.sparse.from_dense([[5.0, 0.0], [0.0, 2.0]])
    predictions = tf.constant([[4.0, 3.0], [3.0, 4.0]])
    ObservedSquaredError()(ratings, predictions)  # (1 + 4) / 2 rows = 2.5
    ```
    """

    def __init__(
        self,
        reduction="sum_over_batch_size",
        name="observed_squared_error",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true, y_pred):
        return observed_squares(y_true, y_pred)


@keras.saving.register_keras_serializable(package="kerasmgpu")
class WholeRowSquaredError(keras.losses.Loss):
    """Mean squared error over the whole row on [0, 1]; missing ratings are 0.

    The loss of the published experiment. It rewards predicting 0 for what
    nobody has rated, so it can't be compared with an error of ratings.

    Args:
        max_rating: Highest rating, which becomes 1. Defaults to `5.0`.
    """

    def __init__(
        self,
        max_rating=5.0,
        reduction="sum_over_batch_size",
        name="whole_row_squared_error",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.max_rating = max_rating

    def call(self, y_true, y_pred):
        return whole_row_means(y_true, y_pred, self.max_rating)

    def get_config(self):
        return {**super().get_config(), "max_rating": self.max_rating}


@keras.saving.register_keras_serializable(package="kerasmgpu")
class ObservedRMSE(keras.metrics.Metric):
    """Root of the mean squared error over the observed ratings.

    Its states are two sums, so those of several replicas can be added. It is
    on the scale of the ratings, 1 to 5 stars.

    Args:
        min_rating: Lower predictions count as this one. Defaults to `None`.
        max_rating: Higher predictions count as this one. Defaults to `None`.
    """

    def __init__(
        self, min_rating=None, max_rating=None, name="rmse", dtype=None
    ):
        super().__init__(name=name, dtype=dtype)
        self.min_rating = min_rating
        self.max_rating = max_rating
        self.squares = self.add_weight(name="squares", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        _, ratings, predictions = observed_errors(y_true, y_pred)
        if self.min_rating is not None:
            predictions = tf.maximum(predictions, self.min_rating)
        if self.max_rating is not None:
            predictions = tf.minimum(predictions, self.max_rating)
        errors = tf.cast(predictions - ratings, self.dtype)
        self.squares.assign_add(tf.reduce_sum(tf.square(errors)))
        self.count.assign_add(tf.cast(tf.size(errors), self.dtype))

    def result(self):
        return keras.ops.sqrt(keras.ops.divide_no_nan(self.squares, self.count))

    def get_config(self):
        return {
            **super().get_config(),
            "min_rating": self.min_rating,
            "max_rating": self.max_rating,
        }


@keras.saving.register_keras_serializable(package="kerasmgpu")
class WholeRowLoss(keras.metrics.Metric):
    """Mean over rows of `WholeRowSquaredError`, whatever the model trains on.

    Args:
        max_rating: Highest rating, which becomes 1. Defaults to `5.0`.
    """

    def __init__(self, max_rating=5.0, name="whole_row_loss", dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.max_rating = max_rating
        self.total = self.add_weight(name="total", initializer="zeros")
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        means = whole_row_means(y_true, y_pred, self.max_rating)
        self.total.assign_add(tf.cast(tf.reduce_sum(means), self.dtype))
        self.rows.assign_add(tf.cast(tf.size(means), self.dtype))

    def result(self):
        return keras.ops.divide_no_nan(self.total, self.rows)

    def get_config(self):
        return {**super().get_config(), "max_rating": self.max_rating}
