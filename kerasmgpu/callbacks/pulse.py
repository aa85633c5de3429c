"""Records when the steps of a `fit` end, and marks pending input requests."""

import collections
import threading
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras import step_hooks
from kerasmgpu.callbacks.timed_iterator import Probe
from kerasmgpu.partitioner.runtime.function import Shares

_SECONDS_TO_END = 15.0
"""How long `fit` waits for a last warning: drivers and workers have fewer."""


class InputMark(Probe):
    """Marks requests for a batch that are pending."""

    def __init__(self) -> None:
        super().__init__()
        self._buffer = {
            "dtypes": [tf.float64],
            "shared_name": f"kerasmgpu_input_mark_{self.number}",
        }

    def request(self, get: Callable[[], Any]) -> tuple[Any, None]:
        with tf.device("CPU:0"):
            now = tf.timestamp()
            asked = tf.raw_ops.Stage(
                values=[now], shared_name=self._buffer["shared_name"]
            )
        # An eager operation without outputs has run, and returned `None`.
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
        """Clears the mark that a request at the end of the data leaves."""
        with tf.device("CPU:0"):
            tf.raw_ops.StageClear(**self._buffer)


class Pulse(step_hooks.StepHook):
    """Records when steps end.

    Attributes:
        mark: The `InputMark` that wraps the iterators of the steps.
        since: Float, time of the last progress, by `time.monotonic`.
        seconds: Seconds per step of the last 100 executions that didn't trace.
        is_first: Boolean, whether no execution has ended yet.
        end: Event, set when `fit` returns or raises.
        watcher: Thread that ends after `end` is set, or `None`: `fit` waits for
            what it is writing, at most `_SECONDS_TO_END`.
    """

    def __init__(self, model: keras.Model, mark: InputMark) -> None:
        self._model, self.mark = model, mark
        self._iterator: Any = None
        self._marked: Any = None
        self.since = time.monotonic()
        self.is_first = True
        self.end = threading.Event()
        self.watcher: threading.Thread | None = None
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
        if self.watcher is not None:
            self.watcher.join(_SECONDS_TO_END)
