"""Runs a training step without XLA, and finds out whether XLA is faster.

Training begins without XLA. A thread writes and compiles the form for XLA
(`partitioner/runtime/background_compilation.py`); then both are timed in turns,
and the faster one stays. Workers of a job go from one stage to the next in the
same execution.
"""

import collections
import functools
import math
import statistics
import threading
import time
import weakref
from collections.abc import Callable, Generator
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu._keras import fit, memory_errors, xla_choice
from kerasmgpu.engine import exit_waits
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.background_compilation import (
    BackgroundCompilation,
    CantCompile,
)
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.written import Written

_SETTLED = 10
"""Executions after which a step's time is known."""

_LEAST_SECONDS = 60.0
"""XLA is left off where less training is left: it would not pay."""

_MOST_IN_USE = 0.5
"""Share of a GPU's memory up to which a cluster can run beside a step."""

_EVERY = 16
"""Executions from one agreement of a job's workers to the next."""


Course = Generator[Callable[[Any], Any], float | None, None]
"""Yields what runs the next execution, and is sent its seconds."""


class XlaTrial:
    """Runs a training step's executions, without XLA until XLA is chosen.

    Where an earlier run has chosen it, they are compiled from the first one on.

    Attributes:
        plain: `Execution` without XLA.
    """

    def __init__(
        self, model: keras.Model, program: Program, written: Written, steps: int
    ) -> None:
        self._model = weakref.ref(model)
        self._strategy: ExactStrategy = model.distribute_strategy
        self._given = program, written, steps
        self.plain = self._strategy.execution(program, written, steps)
        self._now: Callable[[Any], Any] = self.plain
        self._course: Course | None = None
        self._compilation: BackgroundCompilation
        self._is_timed = self._is_said = False

    def begin(self, feed: Feed) -> Callable[[Any], Any]:
        """Begins to make the form for XLA, unless it has begun or isn't wanted.

        It is if a choice is asked for, or XLA has been chosen.

        Returns:
            What runs the executions on the feed's iterators.
        """
        model = self._model()
        if model is None or model.jit_compile:
            return self.plain
        request = xla_choice.request(model)
        if self._strategy.num_workers > 1 and not feed.agrees:
            if request is not None:
                self._say_why_not(
                    "workers may have batches of different sizes in one step"
                )
            return self.plain
        known = xla_choice.choice(model)
        is_wanted = known is None and request is not None or known
        if self._course is None and is_wanted:
            self._course = self._steps(model, None if known else request)
            self._advance(self._course, None)
        return self

    def __call__(self, iterator: Any) -> Any:
        """Runs an execution; see `Execution`."""
        course = self._course
        if course is None:
            return self.plain(iterator)
        start = time.perf_counter()
        outputs = self._now(iterator)
        if self._is_timed:
            self._wait()
        self._advance(course, time.perf_counter() - start)
        return outputs

    def _advance(self, course: Course, seconds: float | None) -> None:
        """Lets the course say what runs the next execution."""
        try:
            self._now = course.send(seconds)
        except BaseException:  # Ctrl-C, too: the next `fit` begins anew.
            self._course, self._now, self._is_timed = None, self.plain, False
            raise

    def _say_why_not(self, why: str) -> None:
        """Logs once that the model trains without XLA."""
        if not self._is_said:
            model = self._model()
            logging.info(
                "kerasmgpu: %r trains on without XLA: %s.",
                getattr(model, "name", "model"),
                why,
            )
        self._is_said = True

    def _wait(self) -> None:
        """Waits for the devices."""
        optimizer = getattr(self._model(), "optimizer", None)
        if optimizer is not None:
            optimizer.iterations.numpy()

    # Stages ------------------------------------------------------------------

    def _steps(
        self, model: keras.Model, request: xla_choice.Request | None
    ) -> Course:
        try:
            program, written, steps = self._given
            self._compilation = BackgroundCompilation(
                program, written.has_outputs
            )
            if request is None and xla_choice.is_restored(model):
                # An earlier run has compiled it, which was kept.
                form = program.xla_form(written.has_outputs)
                run = self._strategy.execution(
                    program, program.written_as(form), steps
                )
                while True:
                    yield run
            yield from self._chosen(model, request)
        except (CantCompile, InputError, tf.errors.OpError) as error:
            self._say_why_not(str(error).partition("\n")[0].rstrip("."))
            if xla_choice.choice(model):
                xla_choice.set_choice(model, False)
        while True:
            yield self.plain

    def _chosen(
        self, model: keras.Model, request: xla_choice.Request | None
    ) -> Course:
        compilation = self._compilation
        for _ in range(_SETTLED):
            yield self.plain
        if request is not None and not request.at_once:
            yield from self._until_it_pays()
        share = memory_errors.share_in_use(self._strategy)
        if self._strategy.any_worker(share > _MOST_IN_USE):
            raise CantCompile(
                f"more than {_MOST_IN_USE:.0%} of a GPU's memory was in use, and "
                "clusters run once beside the step to be compiled; "
                "jit_compile=True compiles before"
            )
        logging.info(
            "kerasmgpu: XLA compiles the step of %r while it trains.",
            model.name,
        )
        try:
            yield from self._meanwhile(compilation.write, self.plain)
            compilation.add()
            yield from self._meanwhile(compilation.make_ready, self.plain)
            both = self._strategy.execution(*self._given, run=compilation)
            yield both
            yield from self._compile(self.plain)
            if request is not None:
                self._is_timed = True
                seconds = yield from xla_choice.timings(
                    request.executions, (self.plain, both)
                )
                self._is_timed = False
                xla_choice.set_choice(model, request.decide(seconds))
            if xla_choice.choice(model):
                self.plain.forget()
            while xla_choice.choice(model):
                if compilation.pending:
                    yield from self._compile(both)
                yield both
        finally:
            compilation.stop()

    def _until_it_pays(self) -> Course:
        times: collections.deque[float] = collections.deque(maxlen=_SETTLED)
        running, done, pays = None, 0, False
        while not pays:
            for _ in range(_SETTLED):
                times.append((yield self.plain) or 0.0)
                if fit.innermost() is not running:
                    running, done = fit.innermost(), 0
                done += 1
            left = _executions(running) - done
            seconds = left * statistics.median(times)
            pays = self._strategy.any_worker(seconds >= _LEAST_SECONDS)

    def _compile(self, run: Callable[[Any], Any]) -> Course:
        pending = self._compilation.pending
        work = functools.partial(self._compilation.compile, pending)
        yield from self._meanwhile(work, run)
        self._compilation.use(pending)

    def _meanwhile(
        self, work: Callable[[], None], run: Callable[[Any], Any]
    ) -> Course:
        """Runs executions until a thread has done its work, on all workers."""
        every = _EVERY if self._strategy.num_workers > 1 else 1
        thread, is_done = _Background(work, self._compilation.stop), False
        while not is_done:
            for _ in range(every):
                yield run
            is_done = not self._strategy.any_worker(thread.is_alive())
        error = thread.error
        if self._strategy.any_worker(error is not None):
            why = "another worker says why"
            if error is not None:
                why = f"{type(error).__name__}: {error}"
            raise CantCompile(why) from error


def _executions(running: fit.Fit | None) -> float:
    """Executions of a `fit`; infinite where its length isn't known yet."""
    if running is None or running.num_batches is None:
        return math.inf
    steps = running.num_epochs * running.num_batches
    return steps / running.steps_per_execution


class _Background(threading.Thread):
    """Runs work in a thread and keeps its exception.

    At exit of Python, asks the work to stop and joins the thread: XLA can't be
    interrupted.
    """

    error: Exception | None = None

    def __init__(
        self, work: Callable[[], None], stop: Callable[[], None]
    ) -> None:
        super().__init__(name="kerasmgpu XLA", daemon=True)
        self._work, self._stop_work = work, stop
        exit_waits.add(self._end)
        self.start()

    def _end(self) -> None:
        self._stop_work()
        self.join()

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # What a user sees, `_meanwhile` says.
            self.error = error
        finally:
            exit_waits.remove(self._end)
