"""The strategy that is entered for the rest of a thread, without a `with`.

`keras.distribution.set_distribution` has no end: what follows in its thread runs in
the scope of its strategy. Models of other strategies, made before or after, still
work: where they need their own, it is left for a while. Checked on TensorFlow 2.18
and 2.21.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from kerasmgpu.engine.private_names import distribute_lib, variable_scope
from kerasmgpu.engine.seams import Original, seam


class _Thread(threading.local):
    strategy: Any = None
    scope: contextlib.AbstractContextManager[Any] | None = None


_thread = _Thread()


def current() -> Any:
    """Returns this thread's strategy; `None` in the scope of another one."""
    entered = _thread.strategy
    return entered if tf.distribute.get_strategy() is entered else None


def enter(strategy: Any) -> None:
    """Enters a strategy in place of the one before; `None`: only leaves that."""
    if strategy is current():
        return
    if _thread.scope is not None:
        _thread.scope.__exit__(None, None, None)
        _thread.scope = _thread.strategy = None
    if strategy is not None:
        scope = strategy.scope()
        scope.__enter__()
        _thread.scope, _thread.strategy = scope, strategy


@contextlib.contextmanager
def left() -> Iterator[None]:
    """Context outside of the entered strategy."""
    before = current()
    enter(None)
    try:
        yield
    finally:
        enter(before)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Context that an exception leaves in the scopes in which it began.

    A Ctrl-C can arrive within TensorFlow's code that enters a scope, whose end
    then never comes: the thread would stay in it. A scope is three entries of the
    thread: of strategies, of variable creators, and a variable scope.
    """
    variables = variable_scope.get_variable_scope_store()
    within = variables.current_scope
    graph = tf.compat.v1.get_default_graph()
    strategies = list(graph._distribution_strategy_stack)
    creators = graph._variable_creator_stack
    is_done = False
    try:
        yield
        is_done = True
    finally:
        now = graph._distribution_strategy_stack
        is_longer = now[: len(strategies)] == strategies != now
        if is_longer and not is_done:
            graph._distribution_strategy_stack[:] = strategies
            graph._variable_creator_stack = creators
            variables.current_scope = within


def is_in_the_way_of(strategy: Any) -> bool:
    """Whether another strategy than this one, or than none, is entered."""
    return current() not in (None, strategy)


@seam(distribute_lib, "enter_or_assert_strategy")
@contextlib.contextmanager
def _enter_or_assert(original: Original, strategy: Any) -> Iterator[None]:
    leaves = is_in_the_way_of(strategy)
    with left() if leaves else contextlib.nullcontext(), original(strategy):
        yield
