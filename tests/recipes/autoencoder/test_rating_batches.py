"""Batches that are cut out of sparse rows."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.recipes.autoencoder import generated_ratings, rating_batches
from kerasmgpu.recipes.autoencoder.sparse_rows import SparseRows
from kerasmgpu.recipes.shared import row_order


@pytest.fixture(scope="module")
def parts():
    """Ratings to train on and held out, by item: 70 rows of 50 users."""
    return generated_ratings.generate(50, 70, 900).split(0.2)


def batches_of(parts, **keywords):
    rows = [SparseRows.from_ratings(part, rows="item") for part in parts]
    keywords = {"global_batch_size": 32, "seed": 0, **keywords}
    return rating_batches.training_and_validation(*rows, **keywords)


def dense_of(ratings):
    dense = np.zeros((ratings.num_items, ratings.num_users), np.float32)
    dense[ratings.items, ratings.users] = ratings.values
    return dense


def to_numpy(sparse):
    dense = np.zeros(sparse.dense_shape.numpy(), np.float32)
    dense[tuple(sparse.indices.numpy().T)] = sparse.values.numpy()
    return dense


def test_validation_predicts_held_out_ratings_of_the_same_rows(parts):
    _, validation = batches_of(parts)
    assert validation.cardinality().numpy() == 3
    batches = list(validation)
    assert [x.shape.as_list() for x, _ in batches] == [
        [32, 50],
        [32, 50],
        [6, 50],
    ]
    for side, part in enumerate(parts):
        joined = np.concatenate([to_numpy(batch[side]) for batch in batches])
        np.testing.assert_array_equal(joined, dense_of(part))


@pytest.mark.parametrize("first_step", [0, 2])
def test_training_rebuilds_the_rows_of_the_seeds_order(parts, first_step):
    training, _ = batches_of(parts, seed=1, first_step=first_step)
    order = row_order.batches(70, 32, seed=1, first_step=first_step).take(4)
    expected = dense_of(parts[0])
    for rows, (inputs, targets) in zip(order, training, strict=False):
        np.testing.assert_array_equal(to_numpy(inputs), expected[rows])
        np.testing.assert_array_equal(to_numpy(targets), expected[rows])


def test_indices_are_in_canonical_order(parts):
    for batch, _ in batches_of(parts, global_batch_size=16)[0].take(5):
        keys = batch.indices.numpy() @ [50, 1]
        assert len(keys) and np.all(np.diff(keys) > 0)


def test_empty_rows_and_an_empty_batch(parts):
    _, held_out = parts
    _, validation = batches_of([held_out, held_out], global_batch_size=1)
    batches = [to_numpy(x) for x, _ in validation]
    assert not all(batch.any() for batch in batches)
    np.testing.assert_array_equal(np.concatenate(batches), dense_of(held_out))


def test_the_width_of_a_batch_is_known_before(parts):
    spec = tf.SparseTensorSpec([None, 50], tf.float32)
    for data in batches_of(parts):
        assert data.element_spec == (spec, spec)
