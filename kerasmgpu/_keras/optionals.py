"""Parts of a batch that hold no data, which steps get as `None`."""

import tensorflow as tf

from kerasmgpu.partitioner.execution import is_empty


def without_optionals(batch):
    """A batch, or its specification, with `None` for what holds no data."""
    return tf.nest.map_structure(
        lambda leaf: None if _holds_no_data(leaf) else leaf, batch
    )


def _holds_no_data(leaf):
    if isinstance(leaf, tf.TypeSpec):
        return is_empty(leaf)
    return isinstance(leaf, tf.experimental.Optional)
