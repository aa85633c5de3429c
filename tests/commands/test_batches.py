"""The first batches of every kind of data."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.commands.batches import (
    batch_sizes,
    checksum,
    describe,
    first_batches,
    num_rows,
)
from kerasmgpu.errors import InputError
from kerasmgpu.verify.layer_outputs import layer_outputs

X = np.arange(60, dtype="float32").reshape(20, 3)
Y = np.arange(20.0)[:, None]


@pytest.mark.parametrize(
    "rows, steps, size, expected",
    [
        (200, 5, None, [26, 26, 26, 26, 13]),
        (20, 5, None, [4, 4, 4, 4, 3]),
        (20, 3, 8, [8, 8, 4]),
        (20, 9, 8, [8, 8, 4]),
        (16, 9, 8, [8, 5]),
        (1, 5, None, [1]),
        (9, 1, 24, [9]),
    ],
)
def test_last_batch_is_smaller(rows, steps, size, expected):
    assert batch_sizes(rows, steps, size) == expected


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        part = slice(8 * index, 8 * (index + 1))
        return [X[part]], Y[part], None


def generator():
    for start in (0, 8):
        yield X[start : start + 8], Y[start : start + 8]


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        tf.data.Dataset.from_tensor_slices((X, Y)).batch(8),
        Batches(),
        generator(),
    ],
)
def test_every_kind_gives_its_rows_in_order(data):
    size = 8 if isinstance(data, tuple) else None
    found = list(first_batches(data, 2, size))
    x, y = (
        np.concatenate([tf.nest.flatten(batch)[i] for batch in found])
        for i in (0, 1)
    )
    assert len(found) == 2
    assert np.array_equal(x, X[: len(x)])
    assert np.array_equal(y, Y[: len(y)])


def test_batches_are_the_same_whenever_they_are_read():
    data = tf.data.Dataset.from_tensor_slices(X).shuffle(20).batch(8)
    found = first_batches(data, 2)
    first, second = (
        [b["checksum"] for b in map(describe, found)] for _ in "12"
    )
    assert first == second


def test_checksums_see_order_values_and_strings():
    one, two, other = (
        describe(tf.constant(list(word))) for word in ("ab", "ba", "ac")
    )
    assert one["checksum"] != two["checksum"]
    assert one["row_checksums"] == two["row_checksums"]
    assert one["row_checksums"] != other["row_checksums"]


def test_checksum_of_strings_is_of_their_letters():
    # Both live, so that equal strings lie at different addresses.
    arrays = [np.array([bytes(bytearray(b"word"))], object) for _ in "12"]
    assert checksum(arrays[:1]) == checksum(arrays[1:])
    assert checksum(arrays) != checksum([arrays[0], np.array([b"w"], object)])


@pytest.mark.parametrize(
    "data, message",
    [
        ((X, Y[:19]), r"same number of rows.*\[20, 3\], \[19, 1\]"),
        ((), "same number of rows"),
        ([X, Y], "must be arrays.*Received: list"),
        (iter(()), "Received: tuple_iterator"),
        ((x for x in ()), "at least one batch is needed"),
    ],
)
def test_data_that_are_none(data, message):
    with pytest.raises(InputError, match=message):
        first_batches(data, 5)


def test_batches_keep_their_size():
    with pytest.raises(InputError, match="are in batches already"):
        first_batches(generator(), 5, 8)


def test_parts_that_are_left_out_stay_in_their_place():
    """An optional input is one; a missing sample weight is not."""
    (batch,) = first_batches(([X, None], Y, None), 1, 8)
    (x, left_out), y = batch
    assert left_out is None and x.shape == (5, 3) and y.shape == (5, 1)
    assert describe(batch)["rows"] == 5


def test_inputs_alone_are_no_tuple():
    """As `fit` gives them to a `train_step`."""
    for data in (X, (X,), (X, None)):
        (batch,) = first_batches(data, 1, 8)
        assert batch.shape == (5, 3)
    (batch,) = first_batches(((X, X),), 1, 8)
    assert [len(part) for part in batch[0]] == [5, 5]


def test_named_tuples_keep_their_names():
    pair = collections.namedtuple("Pair", "second first")
    (batch,) = first_batches((pair(X, Y), Y), 1, 8)
    assert batch[0].second.shape == (5, 3)


def test_rows_are_those_of_the_first_leaf_that_has_any():
    sparse = tf.sparse.from_dense([[1, 2], [3, 4], [0, 5]])
    ragged = tf.ragged.constant([[1], [2, 3, 4], []])
    assert num_rows({"a": 3, "b": None, "c": sparse}) == 3
    assert num_rows((tf.constant(2.0), ragged)) == 3


@pytest.mark.filterwarnings("ignore:When providing `inputs` as a dict")
def test_layers_get_the_inputs_that_data_are_matched_to():
    first = keras.Input((2,), name="z")
    second = keras.Input((3,), name="a")
    outputs = keras.layers.Dense(1)(first), keras.layers.Dense(1)(second)
    model = keras.Model({"one": first, "two": second}, outputs)
    x = {"one": X[:, :2], "two": X}
    data = tf.data.Dataset.from_tensors((x, Y))
    names, found = layer_outputs(model, data)
    expected = model.predict(x, verbose=0)
    assert names == [layer.name for layer in model.layers[2:]]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
