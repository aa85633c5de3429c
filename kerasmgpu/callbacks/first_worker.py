"""Callbacks that write somewhere are called on one worker only."""

from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu.errors import InputError
from kerasmgpu.job.cluster import is_first_worker

_BATCH_HOOKS = ("on_batch_end", "on_train_batch_end", "on_test_batch_end")

_SAVING = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.BackupAndRestore,
)


class OnFirstWorker(keras.callbacks.Callback):
    """Calls a callback on the first worker of a job, and on no other.

    For callbacks that send logs to a service or write files of their own. Some
    need none of this: what Keras's own write is written once, and those of
    MLflow, Weights & Biases and Comet are called on the first worker anyway.

    The callback may look at logs, and at variables of the model. What all
    workers do together it must not do: call `fit`, `evaluate` or `predict`, or
    read a metric's state.

    Args:
        callback: Function without arguments, or a class, that makes the
            `keras.callbacks.Callback`: it is called on the first worker only,
            for callbacks that start a run, or look for one, as they are made.
            Or the callback itself, which then is made on all workers.

    Raises:
        InputError: If it is neither, or the callback saves the model, which
            needs all workers.

    Example:

    ```python
    tracker = kerasmgpu.callbacks.OnFirstWorker(MyTracker)
    model.fit(dataset, epochs=5, callbacks=[tracker])
    ```
    """

    def __init__(
        self,
        callback: keras.callbacks.Callback | Callable[[], Any],
    ) -> None:
        super().__init__()
        self._is_called = is_first_worker()
        if isinstance(callback, keras.callbacks.Callback):
            self.callback = _checked(callback)
        elif not callable(callback):
            raise _no_callback(callback)
        else:
            self.callback = _checked(callback()) if self._is_called else None

    @property
    def reads_batch_logs(self) -> bool:
        """Whether the callback looks at the results of single steps."""
        if not self._is_called:
            return False  # The first worker tells the others.
        own, nothing = type(self.callback), keras.callbacks.Callback
        return getattr(self.callback, "reads_batch_logs", True) and any(
            getattr(own, name) is not getattr(nothing, name)
            for name in _BATCH_HOOKS
        )

    def set_params(self, params: dict[str, Any]) -> None:
        super().set_params(params)
        if self._is_called:
            self.callback.set_params(params)

    def set_model(self, model: keras.Model) -> None:
        super().set_model(model)
        if self._is_called:
            self.callback.set_model(model)


def _checked(callback: Any) -> keras.callbacks.Callback:
    """The callback, where it is one that a single worker can call."""
    if not isinstance(callback, keras.callbacks.Callback):
        raise _no_callback(callback)
    for kind in _SAVING:
        if isinstance(callback, kind):
            raise InputError(
                f"{type(callback).__name__} saves the model, in which all "
                "workers take part: pass it to fit itself, on all of them. "
                "What it writes is written once."
            )
    return callback


def _no_callback(received: Any) -> InputError:
    return InputError(
        "OnFirstWorker takes a keras.callbacks.Callback, or a function that "
        f"makes one. Received: {received!r}"
    )


def _forwarded(name: str) -> Callable[..., None]:
    def hook(self: OnFirstWorker, *args: Any, **kwargs: Any) -> None:
        if self._is_called:
            getattr(self.callback, name)(*args, **kwargs)

    hook.__name__ = name
    return hook


for _name in dir(keras.callbacks.Callback):
    if _name.startswith("on_"):
        setattr(OnFirstWorker, _name, _forwarded(_name))
