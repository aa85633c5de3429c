"""How many files a `tf.data.Dataset` reads, which it doesn't say in public.

Checked on TensorFlow 2.18 and 2.21.
"""

import tensorflow as tf

_READERS = (
    "TFRecordDataset",
    "TFRecordDatasetV2",
    "TextLineDataset",
    "FixedLengthRecordDataset",
    "FixedLengthRecordDatasetV2",
)


def num_files(dataset):
    """Files that a data set reads with TensorFlow's own readers.

    Files that a function opens by itself (`tf.io.read_file` in a `map`) don't
    count: such a data set is one of file names.

    Args:
        dataset: `tf.data.Dataset`.

    Returns:
        Integer, 0 where there is no reader, or where the data set can't be
        written as a graph (a Python generator).
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
    # Compression and the like are scalars of strings; file names are vectors,
    # or the one scalar that a single file's reader was given first.
    counts = [
        name.tensor_shape.dim[0].size
        for name in names
        if len(name.tensor_shape.dim) == 1
    ]
    return max(counts, default=1)
