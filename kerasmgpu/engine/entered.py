"""The strategy that is entered for the rest of the program, without a `with`.

`keras.distribution.set_distribution` has no end: its strategy becomes TensorFlow's
default. Models of other strategies, made before or after, still work: where they
need their own, it is left for a while. Checked on TensorFlow 2.18 and 2.21.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from kerasmgpu.engine.private_names import distribute_lib
from kerasmgpu.engine.seams import Original, seam

_entered: list[Any] = [None]


def current() -> Any:
    """Returns the entered strategy, or `None` in the scope of another one."""
    (entered,) = _entered
    return entered if tf.distribute.get_strategy() is entered else None


def enter(strategy: Any) -> None:
    """Enters a strategy in place of the one before; `None`: only leaves that."""
    if strategy is not current():
        tf.distribute.experimental_set_strategy(strategy)
        _entered[:] = [strategy]


@contextlib.contextmanager
def left() -> Iterator[None]:
    """Context outside of the entered strategy."""
    before = current()
    enter(None)
    try:
        yield
    finally:
        enter(before)


def is_in_the_way_of(strategy: Any) -> bool:
    """Whether another strategy than this one, or than none, is entered."""
    return current() not in (None, strategy)


@seam(distribute_lib, "enter_or_assert_strategy")
@contextlib.contextmanager
def _enter_or_assert(original: Original, strategy: Any) -> Iterator[None]:
    leaves = is_in_the_way_of(strategy)
    with left() if leaves else contextlib.nullcontext(), original(strategy):
        yield
