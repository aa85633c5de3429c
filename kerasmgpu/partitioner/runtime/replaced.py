"""Sharded variables that were made anew, in another layout.

`Partitioned` forgets programs that captured them, and traces them again.
"""

from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable

_ATTRIBUTE = "_kerasmgpu_is_replaced"
"""Attribute of the handle of a variable that was replaced."""

_count = 0


def count() -> int:
    """Returns how many variables were replaced in this process."""
    return _count


def is_replaced(handle: tf.Tensor) -> bool:
    """Whether a captured tensor is the handle of a replaced variable."""
    return getattr(handle, _ATTRIBUTE, False)


def note(variable: "ShardedVariable") -> None:
    """Marks a variable whose place another one takes."""
    global _count
    _count += 1
    setattr(variable.handle, _ATTRIBUTE, True)
