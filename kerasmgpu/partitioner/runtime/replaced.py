"""Sharded variables that were made anew, in another layout.

What captured them is traced again: `Partitioned` forgets such programs.
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
    """Notes that another variable takes the place of this one."""
    global _count
    _count += 1
    setattr(variable.handle, _ATTRIBUTE, True)
