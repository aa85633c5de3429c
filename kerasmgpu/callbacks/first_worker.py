"""Callbacks that write somewhere are called on one worker only."""

from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu.errors import InputError
from kerasmgpu.job.cluster import from_environment

_BATCH_HOOKS = ("on_batch_end", "on_train_batch_end", "on_test_batch_end")


class OnFirstWorker(keras.callbacks.Callback):
    """Calls a callback on the first worker of a job, and on no other.

    For callbacks that send logs to a service or write files of their own
    (Weights & Biases, MLflow, Comet). Keras's own need none of this: what
    `CSVLogger`, `ModelCheckpoint`, `BackupAndRestore` and `TensorBoard` write is
    written once.

    The callback may look at logs, and at variables of the model. What all
    workers do together it must not do: call `fit`, `evaluate` or `predict`, or
    read a metric's state.

    Args:
        callback: `keras.callbacks.Callback`.

    Raises:
        InputError: If it is none.

    Example:

    ```python
    tracker = kerasmgpu.callbacks.OnFirstWorker(WandbMetricsLogger())
    model.fit(dataset, epochs=5, callbacks=[tracker])
    ```
    """

    def __init__(self, callback: keras.callbacks.Callback) -> None:
        super().__init__()
        if not isinstance(callback, keras.callbacks.Callback):
            raise InputError(
                "OnFirstWorker takes a keras.callbacks.Callback. Received: "
                f"{callback!r}"
            )
        worker = from_environment()
        self.callback = callback
        self._is_called = worker is None or worker.is_first

    @property
    def reads_batch_logs(self) -> bool:
        """Whether the callback looks at the results of single steps."""
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


def _forwarded(name: str) -> Callable[..., None]:
    def hook(self: OnFirstWorker, *args: Any, **kwargs: Any) -> None:
        if self._is_called:
            getattr(self.callback, name)(*args, **kwargs)

    hook.__name__ = name
    return hook


for _name in dir(keras.callbacks.Callback):
    if _name.startswith("on_"):
        setattr(OnFirstWorker, _name, _forwarded(_name))
