"""Runs a training step without XLA, and finds out whether XLA is faster.

Training begins without XLA. A thread writes and compiles the other form
(`partitioner/runtime/ahead.py`); then both are timed in turns, and the faster
one stays. Workers of a job go from one stage to the next in the same execution.
"""

import atexit
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
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.ahead import Ahead, CantCompile
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


class Steered:
    """Runs a training step's executions without XLA, until XLA is chosen.

    Args:
        model: The model.
        program: `Program` of its step.
        written: `Written` of it.
        steps: Number of steps of an execution.

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
        self._course: Generator[Callable[[Any], Any], float, None] | None = None
        self._is_timed = False

    def begin(self, request: xla_choice.Request | None) -> None:
        """Begins to make and time the compiled form, unless it has begun.

        Args:
            request: The `xla_choice.Request`, or `None` to only use an earlier choice.
        """
        model = self._model()
        if self._course is not None or model is None:
            return
        known = xla_choice.choice(model)
        if known is False or request is None and known is None:
            return
        self._course = self._steps(model, request, known)
        self._now = next(self._course)

    def __call__(self, iterator: Any) -> Any:
        """Runs an execution; see `Execution`."""
        if self._course is None:
            return self.plain(iterator)
        start = time.perf_counter()
        outputs = self._now(iterator)
        if self._is_timed:
            self._wait()
        self._now = self._course.send(time.perf_counter() - start)
        return outputs

    def _wait(self) -> None:
        """Waits for the devices."""
        optimizer = getattr(self._model(), "optimizer", None)
        if optimizer is not None:
            optimizer.iterations.numpy()

    # Each stage yields what runs the next execution, and is sent its seconds.

    def _steps(
        self,
        model: keras.Model,
        request: xla_choice.Request | None,
        known: bool | None,
    ) -> Generator[Callable[[Any], Any], float, None]:
        try:
            if known:
                yield from self._compiled_at_once()
            elif request is not None:
                yield from self._chosen(model, request)
        except (CantCompile, InputError, tf.errors.OpError) as error:
            logging.info(
                "kerasmgpu: %r trains on without XLA: %s.",
                model.name,
                str(error).partition("\n")[0].rstrip("."),
            )
        while True:
            yield self.plain

    def _compiled_at_once(
        self,
    ) -> Generator[Callable[[Any], Any], float, None]:
        program, written, steps = self._given
        compiled = program.beside()
        run = self._strategy.execution(
            compiled, compiled.written(written.has_outputs), steps
        )
        while True:
            yield run

    def _chosen(
        self, model: keras.Model, request: xla_choice.Request
    ) -> Generator[Callable[[Any], Any], float, None]:
        program, written, _ = self._given
        ahead = Ahead(program, written.has_outputs)
        weakref.finalize(self, ahead.stop)
        for _ in range(_SETTLED):
            yield self.plain
        if not request.at_once:
            yield from self._until_it_pays()
        share = memory_errors.share_in_use(self._strategy)
        if self._strategy.any_worker(share > _MOST_IN_USE):
            raise CantCompile(
                f"it uses {share:.0%} of a GPU's memory, and clusters run once "
                "beside it to be compiled; jit_compile=True compiles before"
            )
        logging.info(
            "kerasmgpu: XLA compiles the step of %r while it trains.",
            model.name,
        )
        yield from self._meanwhile(ahead, ahead.write, self.plain)
        ahead.add()
        yield from self._meanwhile(ahead, ahead.make_ready, self.plain)
        both = self._strategy.execution(*self._given, run=ahead)
        yield both
        yield from self._compile(ahead, self.plain)
        chosen = yield from self._timed(request, both)
        xla_choice.set_choice(model, chosen)
        while chosen:
            if ahead.pending:
                yield from self._compile(ahead, both)
            yield both

    def _until_it_pays(self) -> Generator[Callable[[Any], Any], float, None]:
        times: collections.deque[float] = collections.deque(maxlen=_SETTLED)
        pays = False
        while not pays:
            for _ in range(_SETTLED):
                times.append((yield self.plain))
            seconds = _executions_left() * statistics.median(times)
            pays = self._strategy.any_worker(seconds >= _LEAST_SECONDS)

    def _compile(
        self, ahead: Ahead, run: Callable[[Any], Any]
    ) -> Generator[Callable[[Any], Any], float, None]:
        pending = ahead.pending
        yield from self._meanwhile(
            ahead, functools.partial(ahead.compile, pending), run
        )
        ahead.use(pending)

    def _meanwhile(
        self,
        ahead: Ahead,
        work: Callable[[], None],
        run: Callable[[Any], Any],
    ) -> Generator[Callable[[Any], Any], float, None]:
        """Runs executions until a thread has done its work, on all workers."""
        every = _EVERY if self._strategy.num_workers > 1 else 1
        thread, is_done = _Background(work, ahead.stop), False
        while not is_done:
            for _ in range(every):
                yield run
            is_done = not self._strategy.any_worker(thread.is_alive())
        if self._strategy.any_worker(thread.error is not None):
            raise thread.error or CantCompile("another worker says why")

    def _timed(
        self, request: xla_choice.Request, both: Callable[[Any], Any]
    ) -> Generator[Callable[[Any], Any], float, bool]:
        seconds: xla_choice.Seconds = {False: [], True: []}
        # Two blocks of each, in turns: a machine that becomes slower during the
        # trial affects both.
        half = -(-request.executions // 2)
        self._is_timed = True
        for kind in (False, True, False, True):
            for number in range(-xla_choice.WARM_UP, half):
                took = yield both if kind else self.plain
                if number >= 0:
                    seconds[kind].append(took)
        self._is_timed = False
        return request.decide(seconds)


def _executions_left() -> float:
    """Executions that are left of the running `fit`, as far as it is known."""
    running = fit.innermost()
    if running is None or running.num_batches is None:
        return math.inf
    epochs = running.num_epochs - running.epoch
    steps = epochs * running.num_batches - running.step
    return steps / running.steps_per_execution


class _Background(threading.Thread):
    """Does some work in a thread, and keeps the exception that ends it.

    When Python ends, the thread is stopped, and waited for: XLA can't be
    interrupted while it compiles.

    Args:
        work: What is done.
        stop: Function that ends it soon.
    """

    error: BaseException | None = None

    def __init__(
        self, work: Callable[[], None], stop: Callable[[], None]
    ) -> None:
        super().__init__(name="kerasmgpu XLA", daemon=True)
        self._work, self._stop_work = work, stop
        atexit.register(self._end)
        self.start()

    def _end(self) -> None:
        self._stop_work()
        self.join()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            atexit.unregister(self._end)
