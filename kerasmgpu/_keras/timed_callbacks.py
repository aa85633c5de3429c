"""Times the hooks of each callback of a `fit`.

Keras calls a hook of all callbacks in a loop over `CallbackList.callbacks`. A
list whose iterator notes when the loop asks for the next callback times them
all, whatever hooks Keras or a subclass of `CallbackList` has, and leaves the
callbacks as they are. Between the steps of an epoch only callbacks with hooks of
batches are timed, so that the others cost nothing.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras.src import utils
from keras.src.callbacks.callback_list import CallbackList

from kerasmgpu.engine.fit_clock import (
    BETWEEN_STEPS,
    CALLBACK,
    CHECKPOINTS,
    FitClock,
)

_BATCH_HOOKS = (
    *("on_batch_begin", "on_batch_end"),
    *("on_train_batch_begin", "on_train_batch_end"),
)
_SAVING = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)


class TimedCallbacks(list[Any]):
    """A list of callbacks; a loop over it is timed by a `FitClock`."""

    def __init__(
        self, callbacks: Sequence[keras.callbacks.Callback], clock: FitClock
    ) -> None:
        super().__init__(callbacks)
        self._clock = clock
        self._kinds: dict[int, str] = {}
        self._have_batch_hooks = any(map(_has_batch_hook, callbacks))

    def __iter__(self) -> Iterator[Any]:
        clock = self._clock
        if clock.kind in BETWEEN_STEPS and not self._have_batch_hooks:
            return list.__iter__(self)
        # Keras calls some hooks in threads, beside the steps.
        if threading.get_ident() != clock.thread:
            return super().__iter__()
        return self._timed()

    def _timed(self) -> Iterator[Any]:
        clock = self._clock
        for callback in super().__iter__():
            kind = self._kinds.get(id(callback))
            if kind is None:
                kind = self._kinds[id(callback)] = _kind(callback)
            before = clock.switch(kind)
            try:
                yield callback
            finally:
                clock.switch(before)


def begin(callback_list: CallbackList, clock: FitClock) -> None:
    """Times the callbacks of a list from now on, if one of them reads it."""
    if any(
        getattr(each, "reads_fit_clock", False)
        for each in callback_list.callbacks
    ):
        callback_list.callbacks = TimedCallbacks(callback_list.callbacks, clock)


def end(callback_list: CallbackList) -> None:
    """Puts back a plain list: it may be given to another `fit`."""
    if isinstance(callback_list.callbacks, TimedCallbacks):
        callback_list.callbacks = list(callback_list.callbacks)


def _has_batch_hook(callback: Any) -> bool:
    return not all(
        utils.is_default(getattr(callback, name)) for name in _BATCH_HOOKS
    )


def _kind(callback: Any) -> str:
    """Returns the kind of a callback's work: saving, or its own name."""
    callback = getattr(callback, "on_first_worker", None) or callback
    if getattr(callback, "saves_checkpoints", isinstance(callback, _SAVING)):
        return CHECKPOINTS
    return CALLBACK + type(callback).__name__
