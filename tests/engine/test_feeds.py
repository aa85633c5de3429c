"""Feeds tell what steps read, of our iterators and of users' own."""

import pytest
import tensorflow as tf

from kerasmgpu.engine import feeds
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.errors import InputError


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
