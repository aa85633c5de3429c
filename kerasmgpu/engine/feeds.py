"""Describes how the batches of a data set reach the steps, by `Feed`s."""

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.execution import is_empty

_feeds: weakref.WeakKeyDictionary[Any, "Feed"] = weakref.WeakKeyDictionary()
"""Maps iterators to the feeds that made them."""


@dataclasses.dataclass(frozen=True)
class Feed:
    """Holds a data set that steps read, and tells how batches are split.

    Attributes:
        dataset: `tf.data.Dataset` of global batches, or
            `tf.distribute.DistributedDataset` of a share for each replica. A
            data set or iterator that the user has distributed is kept as it is.
        shared_out: The `element_spec` of the global batches whose shares
            `dataset` yields; `None` if it yields global batches, or if the
            user has distributed it.
        has_own_length: Whether this worker reads other files than the others,
            so that its number of batches may differ from theirs.
        batch_size: Rows of each global batch, except perhaps the last one;
            `None` if they are unknown. Used for estimates only.
    """

    dataset: Any
    shared_out: Any = None
    has_own_length: bool = False
    batch_size: int | None = None

    def iterator(self) -> Any:
        """Returns a new iterator; `of(iterator)` then returns this feed."""
        iterator = iter(self.dataset)
        _feeds[iterator] = self
        return iterator

    @property
    def batch_specification(self) -> Any:
        """The `element_spec` of the global batches.

        If `dataset` yields shares, the number of rows is static only if it is
        static in all leaves.
        """
        if self.shared_out is not None and _has_fixed_rows(self.shared_out):
            return self.shared_out
        return tf.nest.map_structure(_of_any_rows, self.dataset.element_spec)

    @property
    def batch_shapes(self) -> list[tuple[int | None, ...]] | None:
        """Shape of each tensor of a global batch, with `batch_size` rows.

        `None` if `batch_size` is.
        """
        if self.batch_size is None:
            return None
        return [
            (self.batch_size, *shape[1:]) if shape.rank else ()
            for leaf in tf.nest.flatten(self.batch_specification)
            if not is_empty(leaf)
            for shape in _shapes(leaf)
        ]

    @property
    def agrees(self) -> bool:
        """Whether a batch of another size changes the sizes on all workers.

        It may not where each is given its share: of a batch with fewer rows,
        some workers' shares can be as large as before.
        """
        if self.has_own_length:
            return False
        return self.in_shares is None or (
            self.shared_out is not None and _has_fixed_rows(self.shared_out)
        )

    @property
    def in_shares(self) -> tuple[bool, ...] | None:
        """Whether each tensor of a batch is split; `None`: batches are whole.

        Raises:
            InputError: For shares of a tensor of unknown rank.
        """
        if not isinstance(
            self.dataset,
            (
                tf.distribute.DistributedIterator,
                tf.distribute.DistributedDataset,
            ),
        ):
            return None
        leaves = tf.nest.flatten(self.batch_specification)
        if any(
            isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is None
            for leaf in leaves
        ):
            raise InputError(
                "A tensor of unknown rank can't be split by rows. Received: a "
                "distributed data set with one; set its shape (`map` with "
                "`set_shape` or `tf.ensure_shape`), or pass the data set "
                "itself, which is not distributed."
            )
        return tuple(
            is_share for leaf in leaves for is_share in _tensors_in_shares(leaf)
        )


def of(iterator: Any) -> Feed:
    """Returns the feed of an iterator; a new one for a user's iterator."""
    source = unwrapped(iterator)
    return _feeds.get(source) or Feed(source)


def unwrapped(iterator: Any) -> Any:
    """Returns the iterator inside the wrappers that callbacks put around it."""
    while hasattr(iterator, "iterator"):
        iterator = iterator.iterator
    return iterator


def num_rows(leaf: Any, dtype: tf.DType = tf.int32) -> tf.Tensor:
    """Returns the number of rows of a leaf of a batch, as a scalar tensor.

    Args:
        leaf: Tensor, sparse tensor or ragged tensor.
        dtype: Integer type of the result. Defaults to `tf.int32`.
    """
    if isinstance(leaf, tf.SparseTensor):
        return tf.cast(leaf.dense_shape[0], dtype)
    if isinstance(leaf, tf.RaggedTensor):
        return tf.cast(leaf.nrows(), dtype)
    return tf.shape(leaf, out_type=dtype)[0]


def are_all_rows(specification: Any) -> bool:
    """Whether a batch is only scalars and dense tensors of equal row count."""
    leaves = [
        leaf for leaf in tf.nest.flatten(specification) if not is_empty(leaf)
    ]
    if not all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None
        for leaf in leaves
    ):
        return False
    return len({leaf.shape[0] for leaf in leaves if leaf.shape.rank}) <= 1


def set_length(distributed: Any, dataset: tf.data.Dataset) -> None:
    """Sets the cardinality of a distributed data set, in batches.

    TensorFlow doesn't know it for data sets from per-worker functions.

    Args:
        distributed: `tf.distribute.DistributedDataset` with an element for each
            replica of each batch.
    """
    if tf.executing_eagerly():
        distributed._cardinality = dataset.cardinality().numpy()


def set_map(
    distributed: Any, mapped: Callable[[Callable[..., Any]], Any]
) -> None:
    """Adds the methods of a data set that `fit(class_weight=...)` calls.

    Keras 3.10 to 3.15 calls `dataset.map(...).prefetch(...)`, which
    distributed data sets of TensorFlow 2.18 to 2.21 don't have.

    Args:
        distributed: `tf.distribute.DistributedDataset`.
        mapped: Function that takes a function of a batch, and returns the
            distributed data set of mapped batches.
    """
    distributed.map = mapped
    distributed.prefetch = lambda buffer_size: distributed


def _has_fixed_rows(specification: Any) -> bool:
    return all(
        isinstance(leaf, tf.TensorSpec)
        and (leaf.shape.rank == 0 or leaf.shape[:1].is_fully_defined())
        for leaf in tf.nest.flatten(specification)
    )


def _shapes(specification: Any) -> list[tf.TensorShape]:
    """Returns shapes of a leaf's tensors; unknown ones for a composite leaf."""
    if isinstance(specification, tf.TensorSpec):
        return [specification.shape]
    tensors = tf.nest.flatten(specification, expand_composites=True)
    return [tf.TensorShape(None)] * len(tensors)


def _of_any_rows(specification: Any) -> Any:
    """Returns a leaf's `TypeSpec`; for shares, that of any number of rows."""
    if not hasattr(specification, "_value_specs"):
        return specification
    share = specification._value_specs[0]
    if isinstance(share, tf.TensorSpec) and share.shape.rank:
        return tf.TensorSpec([None, *share.shape[1:]], share.dtype)
    return share


def _tensors_in_shares(specification: Any) -> tuple[bool, ...]:
    """Returns whether each tensor of a leaf is split into shares."""
    if is_empty(specification):
        return ()
    if isinstance(specification, tf.TensorSpec):
        return (bool(specification.shape.rank),)
    # `ExactStrategy.prepared` joins shares of composite tensors before the step.
    return (False,) * len(
        tf.nest.flatten(specification, expand_composites=True)
    )


def without_optionals(batch: Any) -> Any:
    """Returns a batch, or its specification, with `None` for empty leaves."""
    return tf.nest.map_structure(
        lambda leaf: None if _holds_no_data(leaf) else leaf, batch
    )


def _holds_no_data(leaf: Any) -> bool:
    if isinstance(leaf, tf.TypeSpec):
        return is_empty(leaf)
    return isinstance(leaf, tf.experimental.Optional)
