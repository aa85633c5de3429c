"""The `HangWatch` callback: says where training stands when a step hangs."""

import collections
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu import _keras
from kerasmgpu._keras import step_hooks
from kerasmgpu.callbacks.hang_thread import HangThread
from kerasmgpu.callbacks.timed_iterator import Probe
from kerasmgpu.errors import checked_number
from kerasmgpu.partitioner.function import Shares


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
        self._mark = _InputMark()  # A new one would be a new trace.
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


class _InputMark(Probe):
    """Marks requests for a batch that have not been answered."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = {
            "dtypes": [tf.float64],
            "shared_name": f"kerasmgpu_input_mark_{self.number}",
        }

    def request(self, get: Callable[[], Any]) -> tuple[Any, None]:
        if not tf.executing_eagerly():
            self.traces += 1
        with tf.device("CPU:0"):
            now = tf.timestamp()
            asked = tf.raw_ops.Stage(
                values=[now], shared_name=self._buffer["shared_name"]
            )
        # An eager operation without outputs is done, and returns `None`.
        with tf.control_dependencies([] if asked is None else [asked]):
            return get(), None

    def note(self, batch: Any, asked: None) -> None:
        # Sparse and ragged tensors have `values` of another kind.
        by_replica = (tf.distribute.DistributedValues, Shares)
        tensors = [
            list(leaf.values) if isinstance(leaf, by_replica) else leaf
            for leaf in tf.nest.flatten(batch)
        ]
        tensors = tf.nest.flatten(tensors, expand_composites=True)
        with tf.device("CPU:0"), tf.control_dependencies(tensors):
            tf.raw_ops.Unstage(**self._buffer)

    def is_pending(self) -> bool:
        """Whether a request waits for its batch."""
        with tf.device("CPU:0"):
            return int(tf.raw_ops.StageSize(**self._buffer)) > 0

    def clear(self) -> None:
        """Forgets a request that the end of the data answered."""
        with tf.device("CPU:0"):
            tf.raw_ops.StageClear(**self._buffer)


class Pulse(step_hooks.StepHook):
    """Records when steps end.

    Attributes:
        since: Float, time of the last progress, by `time.monotonic`.
        seconds: Seconds per step of the last executions that didn't trace.
        is_first: Boolean, whether no execution has ended yet.
        end: Event, set when `fit` returns or raises.
    """

    def __init__(self, model: keras.Model, mark: _InputMark) -> None:
        self._model, self.mark = model, mark
        self._iterator: Any = None
        self._marked: Any = None
        self.since = time.monotonic()
        self.is_first = True
        self.end = threading.Event()
        self.seconds: collections.deque[float] = collections.deque(maxlen=100)

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        if iterator is not self._iterator:  # Once per epoch.
            self._iterator = iterator
            self._marked = self.mark.timed(iterator)
            self.mark.clear()
        traces = self.mark.traces
        start = self.since = time.monotonic()
        logs = run(self._marked)
        self.since = time.monotonic()
        steps = self._model.steps_per_execution
        if self.mark.traces == traces:
            self.seconds.append((self.since - start) / steps)
        self.is_first = False
        return logs

    def on_removed(self) -> None:
        self.end.set()


class _TestPulse(step_hooks.StepHook):
    """Records when steps of a validation end."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        logs = run(iterator)
        self._pulse.since = time.monotonic()
        return logs
