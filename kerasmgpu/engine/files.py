"""Counts the files that a `tf.data.Dataset` reads, by its serialized graph.

There is no public API for it. Checked on TensorFlow 2.18 and 2.21.
"""

import tensorflow as tf

_READERS = (
    "TFRecordDataset",
    "TFRecordDatasetV2",
    "TextLineDataset",
    "FixedLengthRecordDataset",
    "FixedLengthRecordDatasetV2",
)


def num_files(dataset: tf.data.Dataset) -> int:
    """Returns the number of files that a data set's file readers read.

    Files opened in a function (`tf.io.read_file` in a `map`) don't count:
    to TensorFlow, such a data set's elements are file names.

    Args:
        dataset: `tf.data.Dataset`.

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
