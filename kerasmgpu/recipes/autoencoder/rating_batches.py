"""Batches of sparse rating rows for `fit`: to train on, and to validate on."""

import tensorflow as tf

from kerasmgpu.recipes.autoencoder import sparse_rows
from kerasmgpu.recipes.shared import row_order


def training_and_validation(
    train, held_out, global_batch_size, seed, first_step=0
):
    """Makes the two data sets of a run; both are `(ratings, targets)`.

    Training rebuilds the ratings that it is given. Validation is given the
    same ratings and predicts those that were held out. Both elements are
    `tf.SparseTensor`s, `[rows, columns]`; the training rows are held once.

    Args:
        train: `SparseRows` to train on.
        held_out: `SparseRows` of the same shape with the other ratings.
        global_batch_size: Rows of a step, on all replicas together.
        seed: Seed of the order of the training rows.
        first_step: Step that training goes on with. Defaults to `0`.

    Returns:
        Two `tf.data.Dataset`s: endless training batches (see
        `row_order.batches`), and one pass of validation batches.
    """
    take_train = sparse_rows.row_taker(train)
    take_held_out = sparse_rows.row_taker(held_out)

    def rebuild(rows):
        ratings = take_train(rows)
        return ratings, ratings

    def predict(rows):
        return take_train(rows), take_held_out(rows)

    order = row_order.batches(
        train.num_rows, global_batch_size, seed, first_step
    )
    in_turn = tf.data.Dataset.range(train.num_rows).batch(global_batch_size)
    return tuple(
        rows.map(function, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        for rows, function in ((order, rebuild), (in_turn, predict))
    )
