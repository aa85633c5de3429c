"""The `HangWatch` callback: says where training stands when a step hangs."""

import os
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import keras
from absl import logging

from kerasmgpu import _keras, atomic_files
from kerasmgpu._keras import step_hooks, whereabouts
from kerasmgpu.callbacks import local_devices
from kerasmgpu.callbacks.pulse import InputMark, Pulse
from kerasmgpu.errors import (
    checked_arguments,
    checked_number,
    checked_path,
    listed,
)
from kerasmgpu.job import membership, places, workers
from kerasmgpu.partitioner.runtime.costs import Costs
from kerasmgpu.user_lines import frames_of_thread


class HangWatch(keras.callbacks.Callback):
    """Says where training stands when it makes no progress.

    A daemon thread checks once a second. When no step has ended for 20 times
    the median step time, and for 30 seconds at least, it logs a warning, once
    per pause, with:

    - where the training thread is: waiting for input, in the step, in
      validation, or in a callback, with its name;
    - the collectives of the step;
    - the Python stacks of all threads, in the file of `path`, if there is one;
    - the memory of the devices;
    - the program's own lines, at which its threads are;
    - on the first of several workers, last: where each worker is, and for which
      one the others wait.

    Training is not interrupted: if it was merely slow, it goes on. Tracing
    doesn't count as a hang, nor do the first 5 minutes of the first execution,
    in which XLA compiles, unless training waits for input. After a pause that
    was reported, such as a slow callback's, only pauses of three times its
    length are reported, unless `hang_seconds` is set.

    Heartbeats, and not this callback, detect a worker that was stopped or
    killed. The callback works under any strategy and without one.

    Args:
        hang_seconds: Number, seconds without progress after which training
            counts as hanging. `None`: 20 times the median step, at least 30.
            Defaults to `None`.
        path: String or path-like, file to append the warning and all stacks to.
            Without it the stacks are logged. With several workers each appends
            to its own file, with its index before the suffix: `hangs.1.txt`.
            Defaults to `None`.

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

    @checked_arguments
    def __init__(
        self,
        hang_seconds: float | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if hang_seconds is not None:
            checked_number(hang_seconds, "hang_seconds")
        self.hang_seconds = hang_seconds
        self.path = None if path is None else checked_path(path, "path")
        self._mark = InputMark()  # One for all `fit`s: a new one retraces.
        self._pulse: Pulse | None = None
        _keras.install()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.path is not None:
            atomic_files.require_place(self.path, "path")
        self._pulse = Pulse(self.model, self._mark)
        watcher = _HangThread(
            self.model, self._pulse, self.hang_seconds, self.path
        )
        step_hooks.add(self.model, self._pulse, innermost=True)
        watcher.start()
        self._pulse.watcher = watcher

    def on_epoch_begin(
        self, epoch: int, logs: dict[str, Any] | None = None
    ) -> None:
        self._beat()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._beat()
        # Steps of a validation are progress, too. Keras has made the test
        # function before this hook.
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
    """Records when each step of a validation ends, as progress."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        logs = run(iterator)
        self._pulse.since = time.monotonic()
        return logs


_LEAST_SECONDS = 30.0
"""Shortest hang without `hang_seconds`: a busy machine may pause for less."""

_TIMES_THE_MEDIAN = 20

_TIMES_THE_LONGEST = 3
"""Factor on the longest reported pause: shorter ones aren't reported again."""

_SECONDS_OF_TRACING = 300.0
"""Shortest hang in the first execution, which includes XLA's compilation."""

_SECONDS_OF_A_DRIVER = 5.0


class _HangThread(threading.Thread):
    """Looks for a hang once a second, until `fit` ends.

    Args:
        model: The `keras.Model` that the calling thread trains.
    """

    def __init__(
        self,
        model: keras.Model,
        pulse: Pulse,
        hang_seconds: float | None,
        path: str | os.PathLike[str] | None,
    ) -> None:
        super().__init__(name="kerasmgpu-hang-watch", daemon=True)
        self._model, self._pulse, self._end = model, pulse, pulse.end
        self._hang_seconds, self._path = hang_seconds, path
        self._thread = threading.get_ident()
        strategy = model.distribute_strategy
        self._index = workers.index(strategy)
        self._num_workers = workers.count(strategy)
        self._places = membership.places() if self._num_workers > 1 else None
        self._longest = 0.0
        self._reported: float | None = None

    def run(self) -> None:
        if self._places is not None:
            self._places.waits_for_input = self._pulse.mark.is_pending
        self._look()
        if self._places is not None:
            self._places.waits_for_input = None

    def _look(self) -> None:
        least = self._hang_seconds or _LEAST_SECONDS
        interval = min(1.0, least / 4)
        while not self._end.wait(interval):
            since = self._pulse.since
            pause = time.monotonic() - since
            if since == self._reported:
                self._longest = max(self._longest, pause)
            if pause < least / 2:
                continue
            place = self._place(pause)
            if self._places is not None:
                self._places.tell(place)
            if place.kind == whereabouts.TRACING:
                # It is progress: the step begins when it is traced.
                self._pulse.since = time.monotonic()
                continue
            limit = self._limit(place.kind)
            if pause < limit or since == self._reported or self._end.is_set():
                continue
            self._reported = since
            self._write(pause, place)

    def _limit(self, kind: str) -> float:
        """Returns the seconds after which a pause counts as a hang."""
        limit = self._hang_seconds
        if limit is None:
            limit = max(
                _LEAST_SECONDS,
                _TIMES_THE_MEDIAN * self._median(),
                _TIMES_THE_LONGEST * self._longest,
            )
        if self._pulse.is_first and kind == places.IN_STEP:
            return max(limit, _SECONDS_OF_TRACING)
        return limit

    def _median(self) -> float:
        seconds = list(self._pulse.seconds)
        execution = self._model.steps_per_execution
        return execution * statistics.median(seconds) if seconds else 0.0

    def _place(self, pause: float) -> places.Place:
        kind, text = whereabouts.of(frames_of_thread(self._thread))
        if self._places is not None:
            return self._places.here(kind, text, pause)
        if kind == places.IN_STEP and self._pulse.mark.is_pending():
            kind, text = "input", "waiting for input"
        return places.Place(kind, text, pause)

    def _write(self, pause: float, place: places.Place) -> None:
        median = self._median()
        usual = f"; a step takes {median:.3g} s" if median else ""
        first = (
            f"kerasmgpu: training has made no progress for {pause:.0f} s"
            f"{usual}. Worker {self._index} is {place}."
        )
        lines = [first, *_collectives(self._model)]
        last = [f"  {line}" for line in whereabouts.users_frames()]
        last = ["the program's own lines, the innermost last:", *last]
        if self._places is not None and self._index == 0:
            # Others may have begun to wait a moment later.
            self._end.wait(2.0)
            known = self._places.known(seconds=10.0)
            known[0] = place
            last += [
                f"  worker {worker}: {one}" for worker, one in known.items()
            ]
            told = places.verdict(known, self._num_workers)
            last.append(f"kerasmgpu: {told}.")
        stacks = ["stacks:", *whereabouts.stacks(self._thread).splitlines()]
        if self._path is not None:
            self._append("\n".join([*lines, *stacks, *last]))
            stacks = [f"stacks of all threads: {self._file}"]
        devices = ["kerasmgpu: devices:", *_devices()]
        logging.warning("%s", "\n".join([*lines, *stacks, *devices, *last]))
        if self._path is not None:
            self._append("\n".join(devices))

    @property
    def _file(self) -> str:
        """String, this worker's file of warnings."""
        stem, suffix = os.path.splitext(os.fspath(self._path or ""))
        number = f".{self._index}" if self._num_workers > 1 else ""
        return f"{stem}{number}{suffix}"

    def _append(self, text: str) -> None:
        try:
            with open(self._file, "a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n\n")
        except OSError as error:
            logging.warning("kerasmgpu: HangWatch can't write: %s", error)


def _devices() -> list[str]:
    """Returns lines about the devices, whose driver may hang as well."""
    found: list[str] = []
    thread = threading.Thread(
        target=lambda: found.extend(local_devices.state()), daemon=True
    )
    thread.start()
    thread.join(_SECONDS_OF_A_DRIVER)
    if thread.is_alive():
        return [f"no answer within {_SECONDS_OF_A_DRIVER:.0f} s"]
    return found


def _collectives(model: keras.Model) -> list[str]:
    """Returns one line that names a step's collectives; no line if unknown."""
    written = getattr(model.train_function, "written", None)
    found = Costs(written.lowered).names() if written is not None else []
    if not found:
        return []
    return [
        "collectives of the step (TensorFlow doesn't tell which of them is "
        f"pending): {listed(found, 8)}"
    ]
