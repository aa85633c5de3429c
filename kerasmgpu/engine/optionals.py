"""Empty optionals in batches, which steps get as `None`."""

from typing import Any

import tensorflow as tf

from kerasmgpu.partitioner.runtime.execution import is_empty


def without_optionals(batch: Any) -> Any:
    """Returns a batch, or its specification, with `None` for empty leaves."""
    return tf.nest.map_structure(
        lambda leaf: None if _holds_no_data(leaf) else leaf, batch
    )


def _holds_no_data(leaf: Any) -> bool:
    if isinstance(leaf, tf.TypeSpec):
        return is_empty(leaf)
    return isinstance(leaf, tf.experimental.Optional)
