"""Random layers give every row what it would get on one device.

All replicas hold the same seeds (Keras mirrors them), so without care they
draw the same values and a global batch holds only one replica's worth of
different masks. In mode `"global"`, each replica draws the numbers of the
global batch from the common seed and keeps those of its own rows: the result
is the one of a single device, whatever the number of replicas. A draw that is
not one per row (noise on weights) is the same on all replicas, as on one
device.

The cost is that of drawing for the global batch instead of the share; in mode
`"per_replica"` the seed is folded with the replica's number instead: different
values on all replicas, reproducible for a given number of replicas, and no
extra work.
"""

import tensorflow as tf


def global_shape(shape, replica):
    """The shape that one device would draw, and how to cut out our rows.

    Args:
        shape: Shape that this replica asks for (a list with integers or scalar
            tensors, or a tensor).
        replica: The current `Replica`.

    Returns:
        `(shape, cut)`, where `cut(values)` gives this replica's rows, or
        `None` where the draw is not one per row.
    """
    dimensions = _dimensions(shape)
    if not dimensions:
        return None
    per_row = _draws_per_row(dimensions[0], replica)
    if per_row is None:
        return None
    leading = replica.global_rows * per_row
    start = replica.first_row * per_row
    own = dimensions[0]

    def cut(values):
        return values[start : start + own]

    return [leading, *dimensions[1:]], cut


def _dimensions(shape):
    """A shape as a list of Python integers and scalar tensors."""
    if isinstance(shape, tf.TensorShape):
        return shape.as_list()
    if tf.is_tensor(shape):
        static = tf.get_static_value(shape, partial=True)
        return [
            shape[i] if static is None or static[i] is None else int(static[i])
            for i in range(shape.shape[0])
        ]
    return list(shape)


def _draws_per_row(leading, replica):
    """How often the rows fit into the leading dimension; `None` if they don't.

    In a graph the number of rows is not known, so a leading dimension that is
    an integer is not made of rows, and one that is a tensor is. Where the
    number is known (run eagerly, say), an equal leading dimension is.
    """
    if tf.is_tensor(leading):
        static = tf.get_static_value(leading)
        if static is None:
            return tf.maximum(leading // tf.maximum(replica.rows, 1), 1)
        leading = int(static)
    return 1 if leading == replica.static_rows else None


def fold_in(seed, replica):
    """A seed of the replica's own: `[2]` integers, deterministic.

    Replica 0 keeps the seed. Others add a multiple of a large odd constant
    (2³² divided by the golden ratio) to the second word, whose consecutive
    values Keras uses for consecutive steps, so streams of replicas don't meet.
    """
    offset = tf.cast((replica.index * 0x9E3779B1) % (2**31 - 1), seed.dtype)
    return seed + tf.stack([tf.zeros_like(offset), offset])
