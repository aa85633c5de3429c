"""The arithmetic of throughput; time is an argument."""

import dataclasses
import math
import statistics

import numpy as np


@dataclasses.dataclass
class Execution:
    """One call of the compiled training function.

    Attributes:
        start: Float, seconds; any clock that never goes back.
        end: Float, seconds, when the call returned.
        steps: Integer, steps that the call was to make.
        traced: Boolean, whether it was traced as well as run.
    """

    start: float
    end: float
    steps: int
    traced: bool


class Stopwatch:
    """Adds up what the steps of an epoch took, compilation left out.

    Left out are executions that traced, and those with a batch of a size not
    met before in this `fit`, as in its first (XLA compiles for a size).
    Between two executions, the epoch's median gap counts at most: what
    happens around every step is part of it, a checkpoint every thousand
    steps is not.

    Example:

    >>> stopwatch = Stopwatch()
    >>> for start in (0.0, 10.0, 12.0):
    ...     stopwatch.add(start, start + 2.0, steps=1, traced=start == 0)
    >>> figures = stopwatch.figures([(64, 0.5)] * 3, num_replicas=2)
    >>> figures["examples_per_second"], figures["input_wait_share"]
    (32.0, 0.25)
    """

    def __init__(self):
        self.reset()

    def reset(self):
        """Forgets everything: a new `fit` begins."""
        self._sizes = set()
        self.new_epoch()

    def new_epoch(self):
        """Forgets the executions, not the batch sizes that were met."""
        self._executions = []
        # Asked for after every execution: adding up anew would take longer
        # with each step of the epoch.
        self._steps = 0
        self._backlog = 0.0
        self.finished = False

    @property
    def steps(self):
        """Integer, steps that the epoch's executions were to make."""
        return self._steps

    def add(self, start, end, steps, traced):
        """Notes one execution; arguments as in `Execution`."""
        self._executions.append(Execution(start, end, steps, traced))
        self._steps += steps

    def finish(self, backlog):
        """Ends the epoch.

        Args:
            backlog: Float, seconds that the devices still worked after the
                last execution had returned.
        """
        self._backlog = backlog
        self.finished = True

    def figures(self, batches, num_replicas):
        """Returns the figures of the epoch.

        Args:
            batches: One `(examples, input_seconds)` per step, in order: rows
                over all replicas, and seconds for which the request for the
                batch was pending.
            num_replicas: Integer, replicas that the rows were shared by.

        Returns:
            Dictionary of floats, all NaN where every step was left out:
            `examples_per_second`, `examples_per_second_per_replica`,
            `steps_per_second`, `step_seconds_median`, `step_seconds_p95` and
            `input_wait_share` (0 to 1).
        """
        seconds, examples, input_seconds, step_seconds = 0.0, 0, 0.0, []
        for took, batches_of_it in self._counted(batches):
            seconds += took
            examples += sum(rows for rows, _ in batches_of_it)
            input_seconds += sum(waited for _, waited in batches_of_it)
            steps = len(batches_of_it)
            step_seconds += [took / steps] * steps
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

    def _counted(self, batches):
        """Yields seconds and batches of the executions that count."""
        first = 0
        for execution, pause in zip(self._executions, self._pauses()):
            # The last execution of an epoch may run out of data before its
            # steps are done; the slice is then as short as the data.
            of_it = batches[first : first + execution.steps]
            first += execution.steps
            sizes = {rows for rows, _ in of_it}
            compiled = execution.traced or not sizes <= self._sizes
            self._sizes |= sizes
            if of_it and not compiled:
                yield execution.end - execution.start + pause, of_it

    def _pauses(self):
        """Seconds after each execution that belong to it."""
        executions = self._executions
        gaps = [
            after.start - before.end
            for before, after in zip(executions, executions[1:])
        ]
        longest = statistics.median(gaps) if gaps else 0.0
        return [min(gap, longest) for gap in gaps] + [self._backlog]


def compare_workers(step_seconds):
    """Which worker is slow, and by how much.

    Args:
        step_seconds: List of each worker's seconds for its own part of a step.

    Returns:
        Dictionary of `slowest_worker` (its number, from 0) and, in seconds,
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
