"""Tells strategies that shard which variable Keras is creating.

TensorFlow's variable creators see a name and a value. Keras knows the path, and
whether an optimizer or an `Embedding` creates it. Checked on Keras 3.10 and 3.15.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import keras
from keras.src.backend.common.symbolic_scope import in_symbolic_scope
from keras.src.backend.tensorflow.core import Variable

from kerasmgpu.engine.seams import Original, seam


@dataclasses.dataclass(frozen=True)
class MadeVariable:
    """Describes a variable that Keras is creating.

    Attributes:
        path: The variable's path, such as `"dense/kernel"`.
        is_slot: Whether an optimizer creates it.
        is_embedding: Whether it is a table of an `Embedding` layer.
    """

    path: str
    is_slot: bool
    is_embedding: bool


class _Thread(threading.local):
    def __init__(self) -> None:
        self.owners: list[Any] = []
        self.variables: list[MadeVariable] = []


_thread = _Thread()


def current() -> MadeVariable | None:
    """Returns the variable that this thread is creating, or `None`."""
    return _thread.variables[-1] if _thread.variables else None


def infers_shapes() -> bool:
    """Whether Keras calls layers only to know the shapes of their outputs."""
    return in_symbolic_scope()


@contextlib.contextmanager
def made_by(owner: Any) -> Iterator[None]:
    """Marks variables created in a `with` block as those of `owner`."""
    _thread.owners.append(owner)
    try:
        yield
    finally:
        _thread.owners.pop()


@seam(Variable, "_initialize")
def _initialize(original: Original, self: Any, value: Any) -> None:
    owner = _thread.owners[-1] if _thread.owners else None
    made = MadeVariable(
        self.path,
        isinstance(owner, keras.optimizers.Optimizer),
        isinstance(owner, keras.layers.Embedding),
    )
    _thread.variables.append(made)
    try:
        original(self, value)
    finally:
        _thread.variables.pop()
