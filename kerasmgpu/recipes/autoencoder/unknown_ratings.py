"""Ratings to test on whose user or item has no rating to train on.

AutoRec (Sedhain et al., WWW 2015, section 3), whose figures the recipe's are
compared with, predicts 3 of 5 stars for each. They count in the error like all
others.
"""

import math

import keras
import numpy as np


def default_rating(biases):
    """The whole number nearest to the middle of the scale: 3 of 5 stars.

    Args:
        biases: `rating_biases.Biases`, which have the ends of the scale.
    """
    return math.floor((biases.min_rating + biases.max_rating) / 2 + 0.5)


class WithUnknown(keras.callbacks.Callback):
    """Counts unknown ratings in an epoch's held-out RMSE.

    Put it before callbacks that record the logs.

    Args:
        num_known: Integer, ratings that the model is validated on.
        unknown: float32 array of the other ratings to test on.
        default: What is predicted for each of these.
        name: Name of the figure in the logs. Defaults to `"val_rmse"`.
    """

    def __init__(self, num_known, unknown, default, name="val_rmse"):
        super().__init__()
        self.num_known = num_known
        self.squares = np.square(np.float64(default) - unknown)
        self.name = name

    def over_all(self, rmse):
        """The error over all ratings, from that over the known ones."""
        squares = self.num_known * rmse**2 + self.squares.sum()
        return math.sqrt(squares / (self.num_known + len(self.squares)))

    def on_epoch_end(self, epoch, logs=None):
        logs[self.name] = self.over_all(logs[self.name])
