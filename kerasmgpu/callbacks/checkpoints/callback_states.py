"""Reads and restores the state of other callbacks: attributes that change.

EarlyStopping's wait count and the history so far are examples. Only attributes
of plain data whose values differ from those at the beginning of training are
saved, so settings that the user changes before resuming are not overwritten.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from kerasmgpu.callbacks.checkpoints import plain_data

_NOT_STATE = ("params", "model", "_model", "min_delta")
"""Attributes that Keras sets itself, so that they are not state.

EarlyStopping sets the sign of `min_delta` together with its comparison
function, at the end of the first epoch of a `fit`.
"""


class CallbackStates:
    """Reads and restores the state of callbacks.

    Args:
        callbacks: List of `keras.callbacks.Callback`s whose `on_train_begin`
            has just run.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback]) -> None:
        self._callbacks = list(callbacks)
        self._begun = [_plain_attributes(callback) for callback in callbacks]

    def read(self) -> list[dict[str, Any]]:
        """Returns a list of `{"class", "attributes"}`, one per callback.

        Only attributes that differ from those at construction are in it.
        """
        states = []
        for callback, begun in zip(self._callbacks, self._begun):
            attributes = {
                name: value
                for name, value in _plain_attributes(callback).items()
                if name not in begun or not _equal(value, begun[name])
            }
            states.append(
                {"class": _class_name(callback), "attributes": attributes}
            )
        return states

    def restore(self, states: list[dict[str, Any]]) -> None:
        """Restores each callback's state.

        Callbacks are matched by class, several of one class by their order. A
        callback without a saved state is left unchanged; the first
        state without a callback is logged as a warning.
        """
        waiting = list(self._callbacks)
        for state in states:
            callback = next(
                (c for c in waiting if _class_name(c) == state["class"]), None
            )
            if callback is not None:
                waiting.remove(callback)
                vars(callback).update(state["attributes"])
            elif state["attributes"]:
                logging.log_first_n(
                    logging.WARNING,
                    "The checkpoint has the state of a %s, which is not among "
                    "the callbacks of this fit.",
                    1,
                    state["class"],
                )


def _class_name(callback: keras.callbacks.Callback) -> str:
    return f"{type(callback).__module__}.{type(callback).__qualname__}"


def _plain_attributes(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """Copies the attributes that are plain data, by name."""
    found = {}
    for name, value in vars(callback).items():
        if name in _NOT_STATE:
            continue
        arrays = []
        try:
            data = plain_data.encode(value, arrays)
        except plain_data.NotPlainError:
            continue  # Models, functions, files: the program creates them.
        found[name] = plain_data.decode(data, arrays)
    return found


def _equal(one: Any, other: Any) -> bool:
    """Whether two values of plain data are equal; NaN equals NaN."""
    arrays, others = [], []
    if repr(plain_data.encode(one, arrays)) != repr(
        plain_data.encode(other, others)
    ):
        return False
    return all(
        array.dtype == second.dtype
        and np.array_equal(
            array, second, equal_nan=array.dtype.kind in ("f", "c")
        )
        for array, second in zip(arrays, others)
    )
