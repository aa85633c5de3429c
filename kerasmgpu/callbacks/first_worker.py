"""The `OnFirstWorker` callback: calls a callback on the first worker only."""

from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu.errors import InputError, checked_arguments
from kerasmgpu.job.cluster import is_first_worker

_BATCH_HOOKS = ("on_batch_end", "on_train_batch_end", "on_test_batch_end")

_SAVING = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)


class OnFirstWorker(keras.callbacks.Callback):
    """Calls a callback on the first worker of a job only.

    Use it for callbacks that send logs to a service or write files. Some don't
    need this wrapper: Keras's built-in callbacks write once, and those of
    MLflow, Weights & Biases and Comet are called on the first worker anyway.

    The callback may read logs, variables and metrics, and save the model: the
    other workers send their parts of sharded variables, in each hook at the end
    or the beginning of an epoch, and under `shard` in hooks of batches, too.
    The callback must not call `fit`, `evaluate` or `predict`.

    Args:
        callback: Class, or function without arguments, that returns a
            `keras.callbacks.Callback`. It is called on the first worker only,
            which suits callbacks whose constructor starts or looks up a run.
            Or a `keras.callbacks.Callback`, constructed on all workers.

    Raises:
        InputError: If `callback` is neither, or is one that all workers must
            call: one of Keras's that save the model, or one with
            `needs_all_workers`.

    Example:

    ```python
    tracker = kerasmgpu.callbacks.OnFirstWorker(MyTracker)
    model.fit(dataset, epochs=5, callbacks=[tracker])
    ```
    """

    @checked_arguments
    def __init__(
        self, callback: keras.callbacks.Callback | Callable[[], Any]
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
    def on_first_worker(self) -> keras.callbacks.Callback | None:
        """The callback; `None` on other workers."""
        return self.callback if self._is_called else None

    @property
    def reads_batch_logs(self) -> bool:
        """Whether the callback reads batch logs; `False` on other workers."""
        if not self._is_called:
            return False  # The first worker decides for all.
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
    """Returns the callback, if it may be called on one worker only.

    Raises:
        InputError: If all workers must call it, or it isn't a callback.
    """
    if not isinstance(callback, keras.callbacks.Callback):
        raise _no_callback(callback)
    for kind in _SAVING:
        if isinstance(callback, kind):
            raise InputError(
                f"{type(callback).__name__} saves the model, which needs all "
                "workers: pass it to fit directly, on every worker. Its files "
                "are written once."
            )
    if getattr(callback, "needs_all_workers", False):
        raise InputError(
            f"{type(callback).__name__} needs all workers: pass it to fit "
            "directly, on every worker. It prints and writes on the first one."
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
