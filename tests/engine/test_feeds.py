"""Feeds tell what steps read, of our iterators and of users' own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.engine import feeds
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime import planned_trace


def batches(drop_remainder=False):
    rows = tf.data.Dataset.from_tensor_slices(tf.ones([6, 3]))
    return rows.batch(4, drop_remainder=drop_remainder)


def test_whole_batches_are_not_in_shares(replicas):
    feed = replicas(2).dataset_for_steps(batches())
    assert feed.in_shares is None
    assert feed.batch_specification == tf.TensorSpec([None, 3])


@pytest.mark.parametrize("drop_remainder, rows", [(True, 4), (False, None)])
def test_shares_have_the_rows_of_the_batch(like_gpus, drop_remainder, rows):
    feed = like_gpus(2).dataset_for_steps(batches(drop_remainder))
    assert feed.in_shares == (True,)
    assert feed.batch_specification == tf.TensorSpec([rows, 3])


def test_an_iterator_has_the_feed_that_made_it(like_gpus):
    feed = like_gpus(2).dataset_for_steps(batches())
    assert feeds.of(feed.iterator()) is feed
    users = iter(feed.dataset)
    assert feeds.of(users) == Feed(users)
    assert feeds.of(users).in_shares == (True,)


def test_shares_of_unknown_rank_are_refused(replicas):
    unknown = batches().map(lambda x: tf.py_function(abs, [x], tf.float32))
    distributed = replicas(2).experimental_distribute_dataset(unknown)
    with pytest.raises(InputError, match="set its shape"):
        _ = Feed(distributed).in_shares


def test_shapes_of_a_batch_of_known_size():
    """The tensors of a sparse one are known by their number only."""
    dataset = tf.data.Dataset.from_tensors(
        (tf.ones([4, 3]), tf.sparse.eye(4), 1.0)
    )
    assert Feed(dataset).batch_shapes is None
    shapes = Feed(dataset, batch_size=8).batch_shapes
    assert shapes == [(8, 3), (), (), (), ()]


@pytest.mark.parametrize("of", ["arrays", "data set"])
def test_fit_plans_for_its_batch_size(replicas, monkeypatch, of):
    """An unknown number of rows would be assumed, whatever the user passes."""
    seen = []
    known = planned_trace.CostModel
    monkeypatch.setattr(
        planned_trace,
        "CostModel",
        lambda sizes, *more: seen.append(sizes) or known(sizes, *more),
    )
    x, y = np.ones([30, 3], "float32"), np.ones([30, 1], "float32")
    with replicas(2).scope():
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    if of == "arrays":
        model.fit(x, y, batch_size=8, verbose=0)
    else:
        pairs = tf.data.Dataset.from_tensor_slices((x, y))
        model.fit(pairs.batch(8).prefetch(1), verbose=0)
    (sizes,) = seen
    assert set(sizes.values()) == {8}
