"""Inspects a `tf.data` pipeline: its stateful parts, batch size and files.

Every epoch makes a new iterator. Random operations in a data set's functions
restart with it (so `fit(x, y, shuffle=True)` after `set_random_seed` has
the same order in every epoch). Other state outlives an iterator: the seeds of
`shuffle`, which are drawn when an iterator is made, caches, variables and the
state of Python code.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_ONCE_PER_ITERATOR = {
    "BatchDataset",
    "EnumerateDataset",
    "FilterDataset",
    "MapDataset",
    "OptionsDataset",
    "PaddedBatchDataset",
    "ParallelBatchDataset",
    "ParallelMapDataset",
    "PrefetchDataset",
    "RestructuredDataset",
    "ShardDataset",
    "ShuffleDataset",
    "SkipDataset",
    "TakeDataset",
    "UnbatchDataset",
    "ZipDataset",
}
"""Data sets whose iterator makes one iterator of each input, at once."""

_SEVERAL_ITERATORS = {
    "ConcatenateDataset",
    "FlatMapDataset",
    "InterleaveDataset",
    "ParallelInterleaveDataset",
    "RepeatDataset",
}
"""Data sets whose iterator makes iterators of inputs later, or several."""

_SOURCES = {
    "FixedLengthRecordDatasetV2",
    "RangeDataset",
    "SparseTensorSliceDataset",
    "TensorDataset",
    "TensorSliceDataset",
    "TextLineDatasetV2",
    "TFRecordDatasetV2",
}
"""Data sets of files, tensors and numbers."""

_LASTING = ("Assign", "PyFunc", "Rng", "Stateful")
"""Substrings of names of operations whose state outlives an iterator."""

_LASTING_DATASETS = ("Cache", "Generator", "Random", "Shuffle")
"""Substrings of names of data sets whose state outlives an iterator."""


def making_iterators_suffices(dataset: tf.data.Dataset) -> bool:
    """Whether making an iterator changes a data set's state as a full pass does.

    `False` if unknown.
    """
    return hasattr(dataset, "_inputs") and _making_suffices(dataset, once=True)


def making_iterators_matters(dataset: tf.data.Dataset) -> bool:
    """Whether making an iterator changes the data of later iterators.

    A `shuffle`'s seeds are drawn when an iterator is made, read or not. `True`
    if unknown.
    """
    return (
        not making_iterators_suffices(dataset)
        or _kind(dataset) == "ShuffleDataset"
        or any(map(making_iterators_matters, dataset._inputs()))
    )


def runs_python(dataset: tf.data.Dataset) -> bool:
    """Whether Python makes or changes a data set's elements; `True` if unknown."""
    return (
        not hasattr(dataset, "_inputs")
        or any("PyFunc" in operation for operation in _operations(dataset))
        or any(map(runs_python, dataset._inputs()))
    )


def batch_size(dataset: Any) -> int | None:
    """Returns the rows of the batches that a data set forms; `None` if unknown.

    They are the argument of the pipeline's last `batch`. A later `map` may
    change the number of rows, so use it for estimates only.
    """
    size = getattr(dataset, "_batch_size", None)
    if size is not None:
        static = tf.get_static_value(size)
        return None if static is None else int(static)
    if not hasattr(dataset, "_inputs") or len(dataset._inputs()) != 1:
        return None
    return batch_size(dataset._inputs()[0])


def _kind(dataset: tf.data.Dataset) -> str:
    return type(dataset).__name__.removeprefix("_")


def _making_suffices(dataset: tf.data.Dataset, once: bool) -> bool:
    # `once`: the pipeline's iterator makes exactly one of this data set, when
    # it is made itself.
    kind = _kind(dataset)
    known = _ONCE_PER_ITERATOR | _SEVERAL_ITERATORS | _SOURCES
    if kind not in known or (kind == "ShuffleDataset" and not once):
        return False
    if any(map(_lasts, _operations(dataset))):
        return False
    once = once and kind in _ONCE_PER_ITERATOR
    return all(_making_suffices(each, once) for each in dataset._inputs())


def _operations(dataset: tf.data.Dataset) -> Iterator[str]:
    """Yields the types of all operations in the functions of a data set."""
    for function in dataset._functions():
        graph = function.function.graph.as_graph_def()
        yield from (node.op for node in graph.node)
        for nested in graph.library.function:
            yield from (node.op for node in nested.node_def)


def _lasts(operation: str) -> bool:
    parts = _LASTING_DATASETS if "Dataset" in operation else _LASTING
    return any(part in operation for part in parts)


_READERS = (
    "TFRecordDataset",
    "TFRecordDatasetV2",
    "TextLineDataset",
    "FixedLengthRecordDataset",
    "FixedLengthRecordDatasetV2",
)


def num_files(dataset: tf.data.Dataset) -> int:
    """Returns the number of files that a data set's file readers read.

    There is no public API for it: the files are found in the data set's
    serialized graph. Checked on TensorFlow 2.18 and 2.21.

    Files opened in a function (`tf.io.read_file` in a `map`) don't count:
    to TensorFlow, such a data set's elements are file names.

    Returns:
        Integer; 0 without a reader, or if the data set can't be serialized (a
        Python generator).
    """
    try:
        serialized = dataset._as_serialized_graph(
            external_state_policy=tf.data.experimental.ExternalStatePolicy.IGNORE
        )
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        return 0
    graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    nodes = list(graph.node)
    inner = [node for f in graph.library.function for node in f.node_def]
    if not any(node.op in _READERS for node in nodes + inner):
        return 0
    names = [
        node.attr["value"].tensor
        for node in nodes
        if node.op == "Const"
        and node.attr["dtype"].type == tf.string.as_datatype_enum
    ]
    # File names are string vectors; string scalars are options such as the
    # compression, or the name of a single file.
    counts = [
        name.tensor_shape.dim[0].size
        for name in names
        if len(name.tensor_shape.dim) == 1
    ]
    return max(counts, default=1)
