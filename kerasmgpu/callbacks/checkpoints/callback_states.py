"""What training changed in the other callbacks.

EarlyStopping's patience that is used up, the history so far: attributes of the
callbacks' own, plain data. Only those that differ from what they were when
training began are kept, so settings that the user changes before going on are
not put back.
"""

import numpy as np
from absl import logging

from kerasmgpu.callbacks.checkpoints import plain_data

_NOT_STATE = ("params", "model", "_model", "min_delta")
"""What Keras sets itself, for every callback or with a function beside it.

EarlyStopping turns the sign of its `min_delta` when it finds out, at the end
of the first epoch of a `fit`, in which direction its metric is better.
"""


class CallbackStates:
    """Reads and restores the state of callbacks.

    Args:
        callbacks: List of `keras.callbacks.Callback`, each just begun
            (`on_train_begin` was called).
    """

    def __init__(self, callbacks):
        self._callbacks = list(callbacks)
        self._begun = [_plain_attributes(callback) for callback in callbacks]

    def read(self):
        """List of `{"class", "attributes"}`, plain data, one per callback."""
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

    def restore(self, states):
        """Gives each callback its state back.

        Callbacks are matched by their class, several of one class by their
        order. One that was not there before starts as it is; a state that has
        no callback any more is told.

        Args:
            states: What `read` returned.
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


def _class_name(callback):
    return f"{type(callback).__module__}.{type(callback).__qualname__}"


def _plain_attributes(callback):
    """Copies of the attributes that are plain data, by name."""
    found = {}
    for name, value in vars(callback).items():
        if name in _NOT_STATE:
            continue
        arrays = []
        try:
            data = plain_data.encode(value, arrays)
        except plain_data.NotPlainError:
            continue  # Models, functions, files: the program makes them anew.
        found[name] = plain_data.decode(data, arrays)
    return found


def _equal(one, other):
    """Whether plain data is the same, NaN and all."""
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
