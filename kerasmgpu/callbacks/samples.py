"""Samples of some steps, for `Monitors`: norms, and a profile."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from kerasmgpu._keras import step_hooks
from kerasmgpu._keras.norms import FunctionWithNorms
from kerasmgpu.job import workers

_NOTHING = contextlib.nullcontext()


class Sampled(Protocol):
    """What is sampled of a callback; see `monitors.Monitors`."""

    model: Any
    every: int
    norms: Any
    function: Any
    log_dir: Any
    measurement: Any
    profile_steps: Any

    def write(self, scalars: dict[str, Any]) -> None:
        """Writes figures of a step."""


class Samples(step_hooks.StepHook):
    """Counts the steps; takes samples, norms and the profile of a `Monitors`.

    Args:
        monitors: The callback.

    Attributes:
        step: Integer, batches of the optimizer so far.
    """

    def __init__(self, monitors: Sampled) -> None:
        self.step = 0
        self._monitors = monitors
        self._model = monitors.model
        self._first_step: int | None = None
        self._profile = _Profile(monitors)

    def around(self, run: Callable[[Any], Any], iterator: Any) -> Any:
        if self._first_step is None:  # Now a restored model is complete.
            self.step = self._first_step = _batches(self._model.optimizer)
        before, every = self.step, self._monitors.every
        after = before + self._model.steps_per_execution
        is_sample = before // every != after // every
        function = self._with_norms() if is_sample else None
        hooked = self._model.train_function
        if function is not None:
            hooked.function = function
        try:
            with self._profile.around(after - self._first_step):
                logs = run(iterator)
        finally:
            # While `ChooseXla` chooses, it sets the function that runs.
            if function is not None and hooked.function is function:
                hooked.function = function.made_for
        self.step = after
        if is_sample:
            norms = None if function is None else function.take()
            self._monitors.write({} if norms is None else self._tagged(*norms))
        return logs

    def _with_norms(self) -> FunctionWithNorms | None:
        """Returns the function of this step; `None` for the model's own."""
        if self._monitors.norms is None:
            return None
        function = self._monitors.function
        own = self._model.train_function.function
        if function is None or function.made_for is not own:
            function = FunctionWithNorms(self._model)
        self._monitors.function = function
        return function

    def _tagged(self, paths: list[str], norms: np.ndarray) -> dict[str, float]:
        """Returns the norms by their tags."""
        tags = {"global": np.linalg.norm(norms, axis=0)}
        if self._monitors.norms == "variables":
            tags.update(zip(paths, norms))
        return {
            f"l2_norm/{kind}/{name}": float(norm)
            for name, pair in tags.items()
            for kind, norm in zip(("grad", "update"), pair)
        }


class _Profile:
    """Profiles some steps of a `fit`, on the first worker."""

    def __init__(self, monitors: Sampled) -> None:
        self._log_dir = monitors.log_dir
        self._measurement = monitors.measurement
        is_first = workers.is_first(monitors.measurement.strategy)
        self._steps = monitors.profile_steps if is_first else None
        self._runs = False

    def around(self, after: int) -> contextlib.AbstractContextManager[None]:
        """Context of one execution, after which `after` steps are done."""
        if self._steps is None or after < self._steps[0]:
            return _NOTHING
        return self._traced(after, self._steps[1])

    @contextlib.contextmanager
    def _traced(self, after: int, last: int) -> Iterator[None]:
        if not self._runs:
            self._measurement.wait()
            tf.profiler.experimental.start(self._log_dir)
            self._runs = True
            self._measurement.at_end.callback(self._stop)
        with tf.profiler.experimental.Trace("train", step_num=after, _r=1):
            yield
        if after >= last:
            self._measurement.wait()
            self._stop()

    def _stop(self) -> None:
        if self._runs:
            self._runs, self._steps = False, None
            tf.profiler.experimental.stop()


def _batches(optimizer: Any) -> int:
    """Returns the batches that an optimizer has seen."""
    if optimizer is None:
        return 0
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    accumulated = inner.gradient_accumulation_steps or 1
    return int(inner.iterations) * accumulated
