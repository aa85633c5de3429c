"""The first batches of the user's data, and their checksums."""

import functools
import hashlib
import itertools
import types
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu.engine import feeds
from kerasmgpu.errors import InputError
from kerasmgpu.strategies import shares

DEFAULT_ROWS = 26
"""Rows of a batch of arrays: 2 and 4 replicas get 13, 13 and 7, 7, 6, 6."""


def first_batches(
    data: Any, steps: int, global_batch_size: int | None = None
) -> tf.data.Dataset:
    """Returns the first global batches of `data`, the same in each epoch.

    Args:
        data: Arrays `x`, `(x, y)` or `(x, y, sample_weight)` (nests), or
            batches of them: a `tf.data.Dataset`, a `keras.utils.PyDataset` or
            a generator.
        steps: Integer, how many batches.
        global_batch_size: Integer, rows of a batch of arrays. Default: chosen
            by `batch_sizes`.

    Returns:
        A `tf.data.Dataset` of at most `steps` batches.

    Raises:
        InputError: If `data` is none of these, or can't be batched.
    """
    is_array = isinstance(data, (np.ndarray, tf.Tensor, dict, tuple))
    if global_batch_size is not None and not is_array:
        raise InputError(
            f"global_batch_size is for arrays, but the data "
            f"({type(data).__name__}) are in batches already. Received: "
            f"global_batch_size={global_batch_size}; leave it out"
        )
    if isinstance(data, tf.data.Dataset):
        dataset = data.take(steps)
    elif isinstance(data, keras.utils.PyDataset):
        count = steps if data.num_batches is None else data.num_batches
        indices = range(min(steps, count))
        dataset = _dataset_of([data[index] for index in indices])
    elif isinstance(data, types.GeneratorType):
        dataset = _dataset_of(list(itertools.islice(data, steps)))
    elif is_array:
        dataset = _dataset_of(_cut(data, steps, global_batch_size))
    else:
        raise InputError(
            "the data must be arrays (x, y) or (x, y, sample_weight), a "
            "tf.data.Dataset, a keras.utils.PyDataset or a generator of "
            f"batches. Received: {type(data).__name__}"
        )
    # Cached, so that it shuffles and draws once.
    return dataset.cache()


def batch_sizes(
    rows: int, steps: int, global_batch_size: int | None = None
) -> list[int]:
    """Returns the rows of each batch of arrays; the last batch is smaller.

    Args:
        global_batch_size: Integer. Default: 26, or fewer where rows are few.

    Returns:
        List of at most `steps` integers of at least 1.
    """
    if global_batch_size is None:
        affordable = 2 * rows // (2 * steps - 1)
        global_batch_size = max(1, min(DEFAULT_ROWS, affordable))
    full = min(steps - 1, (rows - 1) // global_batch_size)
    # Odd, so that even numbers of replicas get unequal shares: 13 of 26.
    odd_half = global_batch_size // 2 | 1
    last = min(odd_half, rows - full * global_batch_size)
    return [global_batch_size] * full + [last]


def _cut(data: Any, steps: int, global_batch_size: int | None) -> list[Any]:
    data = as_nest(data)
    if isinstance(data, tuple) and len(data) == 1:
        data = data if isinstance(data[0], tuple) else data[0]  # As `fit` does.
    leaves = [leaf for leaf in tf.nest.flatten(data) if leaf is not None]
    rows = {len(leaf) if np.ndim(leaf) else 0 for leaf in leaves}
    if len(rows) != 1 or 0 in rows:
        shapes = ", ".join(str(list(np.shape(leaf))) for leaf in leaves)
        raise InputError(
            "the arrays of the data must have the same number of rows, at "
            f"least 1. Received arrays of shape {shapes or 'none'}"
        )
    sizes = batch_sizes(rows.pop(), steps, global_batch_size)
    ends = itertools.accumulate(sizes)
    return [_cut_out(data, end - size, end) for size, end in zip(sizes, ends)]


def _cut_out(data: Any, start: int, end: int) -> Any:
    return tf.nest.map_structure(
        lambda leaf: None if leaf is None else leaf[start:end], data
    )


def _dataset_of(batches: list[Any]) -> tf.data.Dataset:
    if not batches:
        raise InputError("the data are empty; at least one batch is needed")
    parts = [tf.data.Dataset.from_tensors(as_nest(batch)) for batch in batches]
    return functools.reduce(lambda a, b: a.concatenate(b), parts)


def as_nest(value: Any) -> Any:
    """Converts data to a nest for `tf.data`, as `fit` does.

    Lists become tuples, floats become Keras's float type, and `None` at the
    end (a missing sample weight) is dropped.
    """
    if isinstance(value, (list, tuple)):
        while value and value[-1] is None:
            value = value[:-1]
    return _as_parts(value)


def _as_parts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_parts(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_as_parts, value))
    if isinstance(value, (list, tuple)):
        return tuple(map(_as_parts, value))
    if value is None or isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        return value  # `None` is an input that is left out.
    array = np.asarray(value)
    if array.dtype in (np.float64, np.float32):
        return array.astype(keras.config.floatx())
    return array


def describe(batch: Any) -> dict[str, Any]:
    """Returns rows, checksum and sorted row checksums of a batch.

    Returns:
        JSON-serialisable dictionary; `"row_checksums"` is `None` for sparse
        and ragged batches.
    """
    leaves = [
        leaf.numpy()
        for leaf in tf.nest.flatten(batch, expand_composites=True)
        if leaf is not None
    ]
    rows = num_rows(batch)
    checksums = None
    if all(np.ndim(leaf) and len(leaf) == rows for leaf in leaves):
        checksums = sorted(
            checksum([leaf[row] for leaf in leaves]) for row in range(rows)
        )
    return {
        "rows": rows,
        "checksum": checksum(leaves),
        "row_checksums": checksums,
    }


def num_rows(batch: Any) -> int:
    """Returns the rows of the first leaf with rows, as Keras does, or 0."""
    for leaf in tf.nest.flatten(batch):
        if leaf is not None and shares.has_rows(leaf):
            return int(feeds.num_rows(leaf))
    return 0


def checksum(leaves: Iterable[Any]) -> str:
    """Returns a checksum of arrays, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for leaf in map(np.asarray, leaves):
        # An array of strings holds pointers.
        is_text = leaf.dtype.kind not in "biufc"
        digest.update(
            repr(leaf.tolist()).encode() if is_text else leaf.tobytes()
        )
    return digest.hexdigest()[:16]
