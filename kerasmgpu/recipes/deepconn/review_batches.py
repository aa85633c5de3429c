"""Batches of review texts and ratings for `fit`: to train and to validate on."""

import tensorflow as tf

from kerasmgpu.recipes.shared import row_order


def training_and_validation(
    texts, ratings, train, held_out, global_batch_size, seed, first_step=0
):
    """Makes the two data sets of a run.

    An element is `({"user_text", "item_text"}, ratings)`, int32 `[rows, words]`
    twice and float32 `[rows, 1]`. Texts are put together when they are asked
    for, on the CPU.

    Args:
        texts: `review_texts.ReviewTexts`.
        ratings: float32 array, rating by the number of the review.
        train: int64 array, numbers of the reviews to train on.
        held_out: int64 array, those to validate on.
        global_batch_size: Rows of a step, on all replicas together.
        seed: Seed of the order of the training rows.
        first_step: Step that training goes on with. Defaults to `0`.

    Returns:
        Two `tf.data.Dataset`s: endless training batches, and one pass of
        validation batches.
    """
    ratings = tf.constant(ratings[:, None])
    places = tf.constant(train)

    def element(reviews):
        user_texts, item_texts = texts.take(reviews)
        inputs = {"user_text": user_texts, "item_text": item_texts}
        return inputs, tf.gather(ratings, reviews)

    order = row_order.batches(len(train), global_batch_size, seed, first_step)
    in_turn = tf.data.Dataset.from_tensor_slices(held_out)
    return tuple(
        reviews.map(element, tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
        for reviews in (
            order.map(lambda rows: tf.gather(places, rows)),
            in_turn.batch(global_batch_size),
        )
    )
