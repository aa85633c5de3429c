"""Losses and metrics of sparse rows against numbers worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.recipes.autoencoder import losses

# Two rows of three columns; the second row has one rating, a third has none.
RATINGS = np.array(
    [[5.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]], "float32"
)
PREDICTIONS = np.array(
    [[4.0, 9.0, 4.0], [1.0, 3.5, 2.0], [5.0, 0.0, 0.0]], "float32"
)
SPARSE = tf.sparse.from_dense(RATINGS)


@pytest.mark.parametrize("ratings", [SPARSE, tf.constant(RATINGS)])
def test_observed_loss_sums_the_known_entries_of_each_row(ratings):
    rows = losses.ObservedSquaredError().call(ratings, PREDICTIONS)
    np.testing.assert_allclose(rows, [1.0 + 4.0, 0.25, 0.0])


def test_observed_loss_is_the_mean_over_rows():
    loss = losses.ObservedSquaredError()(SPARSE, PREDICTIONS)
    np.testing.assert_allclose(loss, 5.25 / 3)


def test_whole_row_loss_counts_missing_ratings_as_zero():
    rows = losses.WholeRowSquaredError(5.0).call(SPARSE, PREDICTIONS)
    expected = np.square((RATINGS - PREDICTIONS) / 5.0).mean(axis=1)
    np.testing.assert_allclose(rows, expected, rtol=1e-5)


def test_observed_loss_gives_missing_ratings_no_gradient():
    predictions = tf.constant(PREDICTIONS)
    with tf.GradientTape() as tape:
        tape.watch(predictions)
        loss = losses.ObservedSquaredError()(SPARSE, predictions)
    expected = 2 * (PREDICTIONS - RATINGS) * (RATINGS != 0) / 3
    np.testing.assert_allclose(
        tape.gradient(loss, predictions), expected, rtol=1e-6
    )


def test_rmse_holds_predictions_to_the_scale():
    free = losses.ObservedRMSE()
    held = losses.ObservedRMSE(min_rating=0.5, max_rating=3.0)
    for metric in (free, held):
        metric.update_state(SPARSE, PREDICTIONS)
    np.testing.assert_allclose(free.result(), np.sqrt(5.25 / 3), rtol=1e-6)
    # 4, 4 and 3.5 become 3: errors 2, 1 and 0.
    np.testing.assert_allclose(held.result(), np.sqrt(5 / 3), rtol=1e-6)


@pytest.mark.parametrize(
    "metric", [losses.ObservedRMSE(), losses.WholeRowLoss(5.0)]
)
def test_states_of_shares_add_up_to_those_of_the_batch(metric):
    metric.reset_state()
    metric.update_state(SPARSE, PREDICTIONS)
    whole = [variable.numpy() for variable in metric.variables]
    sums = np.zeros(2)
    for start, end in ((0, 1), (1, 3), (3, 3)):
        metric.reset_state()
        share = tf.sparse.slice(SPARSE, [start, 0], [end - start, 3])
        metric.update_state(share, PREDICTIONS[start:end])
        sums += [variable.numpy() for variable in metric.variables]
    np.testing.assert_allclose(sums, whole, rtol=1e-6)


def test_whole_row_metric_is_the_mean_of_the_loss():
    metric = losses.WholeRowLoss(5.0)
    metric.update_state(SPARSE, PREDICTIONS)
    loss = losses.WholeRowSquaredError(5.0)(SPARSE, PREDICTIONS)
    np.testing.assert_allclose(metric.result(), loss, rtol=1e-6)


def test_a_metric_without_ratings_is_zero_not_nan():
    metric = losses.ObservedRMSE()
    assert float(metric.result()) == 0.0


@pytest.mark.parametrize(
    "thing, attributes",
    [
        (losses.ObservedSquaredError(), []),
        (losses.WholeRowSquaredError(4.0), ["max_rating"]),
        (losses.ObservedRMSE(0.5, 4.0), ["min_rating", "max_rating"]),
        (losses.WholeRowLoss(4.0), ["max_rating"]),
    ],
)
def test_config_round_trip(thing, attributes):
    copy = type(thing).from_config(thing.get_config())
    for name in ["name", *attributes]:
        assert getattr(copy, name) == getattr(thing, name)
