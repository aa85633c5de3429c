"""The `HangWatch` callback: says where training stands when a step hangs."""

import os
import time
from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu import _keras
from kerasmgpu._keras import step_hooks
from kerasmgpu.callbacks.hang_thread import HangThread
from kerasmgpu.callbacks.pulse import InputMark, Pulse
from kerasmgpu.errors import checked_number


class HangWatch(keras.callbacks.Callback):
    """Says where training stands when it makes no progress.

    A daemon thread looks once a second. When no step ends for 20 times the
    median step, and for 30 seconds at least, it logs a warning, once per pause:

    - where the training thread is: it waits for input, is in the step, in
      validation, or in a callback, which is named;
    - in a job of several workers, where each worker is, and so which of them
      the others wait for in which step's collectives (on the first worker);
    - the memory of the devices;
    - the Python stacks of all threads.

    Training is not touched: if it was merely slow, it goes on. Tracing doesn't
    count as a hang, nor do the first 5 minutes of the first execution, where
    XLA compiles, unless it waits for input. A callback that needs longer than
    the limit is reported the first time; after that only pauses of three times
    its length are.

    A worker that was stopped or killed is found without this callback, by
    heartbeats. Works under any strategy and without one.

    Args:
        hang_seconds: Number, seconds without progress after which training
            counts as hanging. `None`: 20 times the median step, at least 30.
            Defaults to `None`.
        path: String or path-like, file to append the warning to, besides
            logging it. With several workers each appends to its own file, with
            its index before the suffix: `hangs.1.txt`. Defaults to `None`.

    Raises:
        InputError: If `hang_seconds` is not a number above 0.

    Example:

    ```python
    watch = kerasmgpu.callbacks.HangWatch(hang_seconds=120)
    model.fit(dataset, epochs=5, callbacks=[watch])
    ```
    """

    # No batch hooks: Keras would wait for each step's results.

    needs_all_workers = True
    """All workers run it, and tell the first one where they are."""

    def __init__(
        self,
        hang_seconds: float | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if hang_seconds is not None:
            checked_number(hang_seconds, "hang_seconds")
        self.hang_seconds = hang_seconds
        self.path = path
        self._mark = InputMark()  # A new one would be a new trace.
        self._pulse: Pulse | None = None
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._pulse = Pulse(self.model, self._mark)
        thread = HangThread(
            self.model, self._pulse, self.hang_seconds, self.path
        )
        step_hooks.add(self.model, self._pulse, innermost=True)
        thread.start()

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._beat()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._beat()
        # Steps of a validation are progress, too. Keras makes its function
        # before this hook.
        function = self.model.test_function
        if self._pulse is not None and not isinstance(
            function, step_hooks.HookedSteps
        ):
            self.model.test_function = step_hooks.HookedSteps(function)
            self.model.test_function.hooks = [_TestPulse(self._pulse)]

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        function = self.model.test_function
        if isinstance(function, step_hooks.HookedSteps):
            self.model.test_function = function.function
        self._beat()

    def _beat(self) -> None:
        if self._pulse is not None:
            self._pulse.since = time.monotonic()


class _TestPulse(step_hooks.StepHook):
    """Records when steps of a validation end."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        logs = run(iterator)
        self._pulse.since = time.monotonic()
        return logs
