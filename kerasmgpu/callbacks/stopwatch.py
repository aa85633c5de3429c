"""Computes throughput from times that callers pass."""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_LONGEST_WINDOW = 1000  # Executions that `pace` looks at, at most.


@dataclasses.dataclass
class Execution:
    """One call of the compiled training function.

    Attributes:
        start: Float, seconds on any monotonic clock.
        end: Float, seconds, when the call returned.
        steps: Integer, requested steps; the data may end before.
        traced: Boolean, whether the call also traced the function.
    """

    start: float
    end: float
    steps: int
    traced: bool


@dataclasses.dataclass
class _Run:
    """An execution with its batches.

    Attributes:
        seconds: Float, its own time.
        pause: Float, the time after it that counts as part of its steps.
        batches: Sequence of `(rows, seconds waited)`, at least one.
        compiled: Boolean, whether it traced or compiled.
    """

    seconds: float
    pause: float
    batches: Sequence[tuple[int, float]]
    compiled: bool

    @property
    def busy(self) -> float:
        """Float, its time without the wait for input."""
        waited = sum(seconds for _, seconds in self.batches)
        return max(0.0, self.seconds - waited)


class Stopwatch:
    """Sums up the step times of an epoch, without compilation.

    Executions that traced are left out. So are those with a batch size that is
    new in this `fit`, among them the first one: XLA compiles for each size. A
    gap between two executions counts up to the epoch's median gap: work around
    every step is included, a checkpoint every thousand steps is not.

    Attributes:
        finished: Boolean, whether the epoch has ended.
        step_seconds: NumPy array of the seconds of each step in the last
            `figures`, without those left out.
        tracing_seconds: Float, by how much the executions that the last
            `figures` left out were longer than others of this `fit`.
        input_seconds: Float, wait for input in all executions of the last
            `figures`.
        busy_seconds: Float, the rest of these executions.

    Example:

    >>> stopwatch = Stopwatch()
    >>> for start in (0.0, 10.0, 12.0):
    ...     stopwatch.add(start, start + 2.0, steps=1, traced=start == 0)
    >>> figures = stopwatch.figures([(64, 0.5)] * 3, num_replicas=2)
    >>> figures["examples_per_second"], figures["input_wait_share"]
    (32.0, 0.25)
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forgets everything, for a new `fit`."""
        self._sizes = set()
        self._typical = 0.0
        self.step_seconds = np.zeros(0)
        self.tracing_seconds = self.input_seconds = self.busy_seconds = 0.0
        self.new_epoch()

    def new_epoch(self) -> None:
        """Forgets the executions, but not the batch sizes seen so far."""
        self._executions = []
        # Read after every execution: summing each time would take longer with
        # each step of the epoch.
        self._steps = 0
        self._backlog = 0.0
        self.finished = False

    @property
    def steps(self) -> int:
        """Integer, requested steps of the epoch's executions."""
        return self._steps

    def add(self, start: float, end: float, steps: int, traced: bool) -> None:
        """Records one execution; arguments as in `Execution`."""
        self._executions.append(Execution(start, end, steps, traced))
        self._steps += steps

    def pace(self, window_seconds: float) -> float | None:
        """Returns the seconds per step of the last executions.

        A thread may call it while steps run.

        Args:
            window_seconds: Float, length of the time window that ends with the
                last execution.

        Returns:
            Float, over the executions after the last one that traced; `None`
            if there are none.
        """
        latest = self._executions[-_LONGEST_WINDOW:]
        # `inf`: the latest execution always counts, however long it took.
        start, steps = math.inf, 0
        for execution in reversed(latest):
            if execution.traced or latest[-1].end - start > window_seconds:
                break
            start, steps = execution.start, steps + execution.steps
        return (latest[-1].end - start) / steps if steps else None

    def finish(self, backlog: float) -> None:
        """Ends the epoch.

        Args:
            backlog: Float, seconds for which the devices were still busy after
                the last execution had returned.
        """
        self._backlog = backlog
        self.finished = True

    def figures(
        self, batches: Sequence[tuple[int, float]], num_replicas: int
    ) -> dict[str, float]:
        """Returns the figures of the epoch; sets `step_seconds`.

        Call it once per epoch: it records the batch sizes as seen, and leaves
        out executions with new ones.

        Args:
            batches: One `(examples, input_seconds)` per step, in order: rows
                over all replicas, and seconds for which the request for the
                batch was pending.
            num_replicas: Integer, replicas that shared the rows.

        Returns:
            Dictionary of floats, all NaN if every step was left out:
            `examples_per_second`, `examples_per_second_per_replica`,
            `steps_per_second`, `step_seconds_median`, `step_seconds_p95` and
            `input_wait_share` (0 to 1).
        """
        seconds, examples, input_seconds, step_seconds = 0.0, 0, 0.0, []
        runs = list(self._runs(batches))
        for run in runs:
            if run.compiled:
                continue
            seconds += run.seconds + run.pause
            examples += sum(rows for rows, _ in run.batches)
            input_seconds += sum(waited for _, waited in run.batches)
            steps = len(run.batches)
            step_seconds += [(run.seconds + run.pause) / steps] * steps
        self.step_seconds = np.asarray(step_seconds)
        self._divide(runs)
        rate = examples / seconds if seconds else math.nan
        median, p95 = (
            np.percentile(step_seconds, (50, 95)).tolist()
            if step_seconds
            else (math.nan, math.nan)
        )
        return {
            "examples_per_second": rate,
            "examples_per_second_per_replica": rate / num_replicas,
            "steps_per_second": (
                len(step_seconds) / seconds if seconds else math.nan
            ),
            "step_seconds_median": median,
            "step_seconds_p95": p95,
            "input_wait_share": (
                min(1.0, input_seconds / seconds) if seconds else math.nan
            ),
        }

    def _divide(self, runs: Sequence["_Run"]) -> None:
        """Divides the executions' time: waits, tracing, and the rest."""
        busy = [r.busy / len(r.batches) for r in runs if not r.compiled]
        if busy:
            self._typical = statistics.median(busy)
        self.input_seconds = sum(run.seconds - run.busy for run in runs)
        self.tracing_seconds = sum(
            max(0.0, run.busy - self._typical * len(run.batches))
            for run in runs
            if run.compiled
        )
        self.busy_seconds = sum(run.busy for run in runs) - self.tracing_seconds

    def _runs(self, batches: Sequence[tuple[int, float]]) -> Iterator["_Run"]:
        """Yields the executions that got a batch.

        Those that traced, or that have a batch size not seen before in this
        `fit`, are marked as compiled. All batch sizes are recorded as seen.
        """
        first = 0
        for execution, pause in zip(self._executions, self._pauses()):
            # In the last execution of an epoch the data may end before the
            # requested steps; the slice is then shorter.
            of_it = batches[first : first + execution.steps]
            first += execution.steps
            sizes = {rows for rows, _ in of_it}
            compiled = execution.traced or not sizes <= self._sizes
            self._sizes |= sizes
            if of_it:
                seconds = execution.end - execution.start
                yield _Run(seconds, pause, of_it, compiled)

    def _pauses(self) -> list[float]:
        """Returns how many seconds after each execution count as part of it."""
        executions = self._executions
        gaps = [
            after.start - before.end
            for before, after in zip(executions, executions[1:])
        ]
        longest = statistics.median(gaps) if gaps else 0.0
        return [min(gap, longest) for gap in gaps] + [self._backlog]


def compare_workers(step_seconds: Sequence[float]) -> dict[str, Any]:
    """Returns the slowest worker, and the slowest and fastest step times.

    Args:
        step_seconds: List of each worker's seconds for its own part of a step.

    Returns:
        Dictionary of `slowest_worker` (its index, from 0) and, in seconds,
        `slowest_worker_step_seconds` and `fastest_worker_step_seconds`.

    Example:

    >>> compare_workers([0.5, 0.75])["slowest_worker"]
    1
    """
    slowest = int(np.argmax(step_seconds))
    return {
        "slowest_worker": slowest,
        "slowest_worker_step_seconds": step_seconds[slowest],
        "fastest_worker_step_seconds": float(np.min(step_seconds)),
    }
