"""Leaves the metrics' results out of steps if no callback reads them.

At the end of an epoch Keras reads the metrics themselves. The logs of a single
step are for callbacks with a batch hook, the progress bar among them; without
one, a step need not all-reduce the metrics and compute their results. A
callback that has such a hook but reads no logs declares it by the attribute
`reads_batch_logs = False`. Both variants of a step are made on first use.
Checked on Keras 3.10 and 3.15.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src import utils
from keras.src.callbacks.callback_list import CallbackList

from kerasmgpu._keras.step_hooks import HookedSteps
from kerasmgpu.engine import feeds


class _Thread(threading.local):
    """State of this thread's innermost `fit` or `evaluate`.

    `begun`: the loop's list of callbacks and the name of its step. `unread`:
    the model and the name of the step whose logs no callback reads; valid while
    the step's batches come from `iterator`.
    """

    in_loop = False
    begun: tuple[CallbackList, str] | None = None
    unread: tuple[Any, str | None] = (None, None)
    iterator: Any = None


_thread = _Thread()


_HOOKS = {
    "train_step": ("on_batch_end", "on_train_batch_end"),
    "test_step": ("on_test_batch_end",),
}


@contextlib.contextmanager
def loop() -> Iterator[None]:
    """Gives one `fit` or `evaluate` fresh state; restores the outer one's after."""
    before = dict(vars(_thread))
    vars(_thread).clear()
    _thread.in_loop = True
    try:
        yield
    finally:
        vars(_thread).clear()
        vars(_thread).update(before)


def begin(callback_list: CallbackList, step_name: str) -> None:
    """Records whether any callback of a new loop reads batch logs.

    Args:
        step_name: `"train_step"` or `"test_step"`.
    """
    if _thread.in_loop:
        _thread.begun = callback_list, step_name
        look_again()


def look_again() -> None:
    """Repeats the check of `begin` for an epoch, as callbacks may change."""
    if _thread.begun is None:
        return
    callback_list, step_name = _thread.begun
    model, hooks = callback_list._model, _HOOKS[step_name]
    is_read = any(_looks(each, hooks) for each in callback_list.callbacks)
    if any(
        hook in vars(kind) for kind in _own(callback_list) for hook in hooks
    ):
        is_read = True
    # All workers must run the same collectives, so they must agree.
    is_read = model.distribute_strategy.any_worker(is_read)
    _thread.unread = (None, None) if is_read else (model, step_name)


def _own(callback_list: CallbackList) -> list[type]:
    """Returns the user's subclasses of `CallbackList` in a list's MRO."""
    return [
        kind
        for kind in type(callback_list).__mro__
        if issubclass(kind, CallbackList) and kind is not CallbackList
    ]


def comes_next(iterator: Any) -> None:
    """Records the iterator that Keras passes to the next step."""
    if _thread.in_loop:  # Only the end of a loop drops the reference.
        _thread.iterator = iterator


def _looks(callback: keras.callbacks.Callback, hooks: tuple[str, ...]) -> bool:
    """Whether a callback reads batch logs."""
    if isinstance(callback, keras.callbacks.ProgbarLogger):
        if callback._called_in_fit and "on_test_batch_end" in hooks:
            return False
        return callback.verbose == 1  # The bar; 2 is a line per epoch.
    if _only_saves(callback) or not getattr(callback, "reads_batch_logs", True):
        return False
    return any(not utils.is_default(getattr(callback, hook)) for hook in hooks)


def _only_saves(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback is one of Keras's that saves once per epoch.

    Its batch hook only counts batches.
    """
    for kind in (
        keras.callbacks.ModelCheckpoint,
        keras.callbacks.BackupAndRestore,
    ):
        if isinstance(callback, kind):
            by_epoch = getattr(callback, "save_freq", "epoch") == "epoch"
            hook = type(callback).on_train_batch_end
            return by_epoch and hook is kind.on_train_batch_end
    return False


def is_unread(
    model: keras.Model,
    steps: Callable[..., Any],
    step: Callable[..., Any],
    iterator: Any,
) -> bool:
    """Whether no callback reads the logs of the step that runs now.

    Args:
        steps: The model's `steps.Steps`; logs count as read if Keras calls
            another function, which may read them.
        step: The model's bound `train_step` or `test_step`.
    """
    owner, step_name = _thread.unread
    if owner is not model or step_name != step.__name__:
        return False
    called = {"train_step": "train_function", "test_step": "test_function"}
    function = getattr(model, called[step_name])
    if isinstance(function, HookedSteps):
        function = function.function
    source = feeds.unwrapped(iterator)
    return function is steps and source is _thread.iterator
