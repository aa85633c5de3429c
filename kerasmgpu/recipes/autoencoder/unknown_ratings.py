"""Test ratings whose user or item has no training rating.

AutoRec (Sedhain et al., WWW 2015, section 3) predicts 3 of 5 stars for each.
"""

import math
from typing import Any

import keras
import numpy as np

from kerasmgpu.recipes.datasets.ratings import Biases


def default_rating(biases: Biases) -> int:
    """The whole number nearest to the middle of the scale: 3 of 5 stars."""
    return math.floor((biases.min_rating + biases.max_rating) / 2 + 0.5)


class WithUnknown(keras.callbacks.Callback):
    """Adds the test ratings of unknown users and items to `val_rmse`.

    Keras validates on the `num_known` other ratings; `default` is the
    prediction for each of `unknown`. Put it before callbacks that record logs.
    """

    def __init__(
        self, num_known: int, unknown: np.ndarray, default: float
    ) -> None:
        super().__init__()
        self.num_known = num_known
        self.squares = np.square(np.float64(default) - unknown)

    def over_all(self, rmse: float) -> float:
        """The RMSE over all test ratings; `rmse` is that over the known ones."""
        squares = self.num_known * rmse**2 + self.squares.sum()
        return math.sqrt(squares / (self.num_known + len(self.squares)))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["val_rmse"] = self.over_all(logs["val_rmse"])
