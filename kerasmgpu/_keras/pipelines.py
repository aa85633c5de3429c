"""What a data set keeps from one pass to the next.

Every epoch is a new iterator. Random operations in a data set's functions
start anew with it (so `fit(x, y, shuffle=True)` after `set_random_seed` has
the same order in every epoch). Seeds of `shuffle`, which are drawn when an
iterator is made, go on; so do caches, variables and Python code.
"""

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
"""Data sets that make one iterator of each input, when they get their own."""

_SEVERAL_ITERATORS = {
    "ConcatenateDataset",
    "FlatMapDataset",
    "InterleaveDataset",
    "ParallelInterleaveDataset",
    "RepeatDataset",
}
"""Data sets that make iterators of their inputs later, or more than one."""

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
"""Parts of names of operations whose state outlives an iterator."""

_LASTING_DATASETS = ("Cache", "Generator", "Random", "Shuffle")
"""The same, of operations that make data sets."""


def making_iterators_suffices(dataset):
    """Whether making an iterator leaves a data set as a whole pass does.

    Args:
        dataset: `tf.data.Dataset` or `tf.distribute.DistributedDataset`.

    Returns:
        Boolean; `False` where that isn't known.
    """
    return hasattr(dataset, "_inputs") and _making_suffices(dataset, once=True)


def making_iterators_matters(dataset):
    """Whether an iterator's data differ for another one's having been made.

    Seeds are drawn when an iterator is made, wanted or not.

    Args:
        dataset: `tf.data.Dataset`.

    Returns:
        Boolean; `True` where that isn't known.
    """
    return (
        not making_iterators_suffices(dataset)
        or _kind(dataset) == "ShuffleDataset"
        or any(map(making_iterators_matters, dataset._inputs()))
    )


def runs_python(dataset):
    """Whether Python code makes or changes the elements of a data set.

    Args:
        dataset: `tf.data.Dataset`.

    Returns:
        Boolean; `True` where that isn't known.
    """
    return (
        not hasattr(dataset, "_inputs")
        or any("PyFunc" in operation for operation in _operations(dataset))
        or any(map(runs_python, dataset._inputs()))
    )


def _kind(dataset):
    return type(dataset).__name__.removeprefix("_")


def _making_suffices(dataset, once):
    # `once`: each iterator of the pipeline makes one of this data set, at once.
    kind = _kind(dataset)
    known = _ONCE_PER_ITERATOR | _SEVERAL_ITERATORS | _SOURCES
    if kind not in known or (kind == "ShuffleDataset" and not once):
        return False
    if any(map(_lasts, _operations(dataset))):
        return False
    once = once and kind in _ONCE_PER_ITERATOR
    return all(_making_suffices(each, once) for each in dataset._inputs())


def _operations(dataset):
    """Names of all operations in the functions of a data set."""
    for function in dataset._functions():
        graph = function.function.graph.as_graph_def()
        yield from (node.op for node in graph.node)
        for nested in graph.library.function:
            yield from (node.op for node in nested.node_def)


def _lasts(operation):
    parts = _LASTING_DATASETS if "Dataset" in operation else _LASTING
    return any(part in operation for part in parts)
