"""What is known of a rating without reading any review."""

import numpy as np

from kerasmgpu.recipes.autoencoder import rating_biases
from kerasmgpu.recipes.autoencoder.ratings import Ratings


def squared_errors(reviews, train, held_out):
    """Mean squared errors of two baselines on the held-out ratings.

    Args:
        reviews: `reviews.Reviews`.
        train: int64 array, numbers of the reviews to fit on.
        held_out: int64 array, those to predict.

    Returns:
        Two floats: that of the mean of the training ratings, and that of mean +
        bias of the user + bias of the item (`rating_biases.fit`).
    """
    known, hidden = (_ratings(reviews, rows) for rows in (train, held_out))
    mean = np.mean(known.values, dtype=np.float64)
    of_mean = float(np.mean(np.square(hidden.values - mean)))
    of_biases = rating_biases.fit(known).root_mean_squared_error(hidden) ** 2
    return of_mean, of_biases


def _ratings(reviews, rows):
    return Ratings(
        users=reviews.users[rows],
        items=reviews.items[rows],
        values=reviews.ratings[rows],
        user_ids=np.arange(reviews.num_users),
        item_ids=np.arange(reviews.num_items),
        description=reviews.description,
    )
