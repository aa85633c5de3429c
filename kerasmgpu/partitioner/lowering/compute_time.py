"""Measures a worker's compute time per step, without waits for other workers.

All workers finish a step together, so the time of whole steps doesn't show
which worker is slow. Hence the time is measured from the arrival of the batch,
or the end of a collective, until the inputs of the next collective are ready.
"""

import tensorflow as tf

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference


class ComputeTime:
    """Adds up the seconds in which a worker's first replica computes."""

    def __init__(self) -> None:
        with tf.device("CPU:0"):
            self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._steps = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def clock(self, build: Function) -> "Clock":
        """Returns a `Clock` that writes its nodes into `build`, for one step."""
        return Clock(build, self._seconds.handle, self._steps.handle)

    def take(self) -> float:
        """Returns mean seconds per step, NaN without one; resets the counters.

        Steps without collectives aren't counted.
        """
        steps = float(self._steps.numpy())
        seconds = float(self._seconds.numpy())
        self._steps.assign(0.0)
        self._seconds.assign(0.0)
        return seconds / steps if steps else float("nan")


class Clock:
    """Writes the operations that measure one function.

    Args:
        seconds: Handle of the variable that seconds are added to.
        steps: Handle of the variable that steps are counted in.
    """

    def __init__(
        self, build: Function, seconds: tf.Tensor, steps: tf.Tensor
    ) -> None:
        self._build = build
        self._handles = seconds, steps
        self._free_since: Reference | None = None
        self._spans: list[Reference] = []

    def ready(self, reference: Reference) -> None:
        """Writes nodes that record when the input of a collective is ready."""
        if self._free_since is None:
            self._free_since = self._time([self._build.started(HOST)])
        now = self._time([self._there(reference)])
        span = self._build.sizes.op("Sub", now, self._free_since)
        zero = self._build.constant(0.0, tf.float64)
        self._spans.append(self._build.sizes.op("Maximum", span, zero))

    def done(self, reference: Reference) -> None:
        """Writes a node that records when a collective is complete."""
        self._free_since = self._time([self._there(reference)])

    def finish(self) -> list[str]:
        """Writes the nodes that add the times to the variables; returns names.

        They must run; there are none without collectives.
        """
        if not self._spans:
            return []
        total = self._spans[0]
        for span in self._spans[1:]:
            total = self._build.sizes.op("AddV2", total, span)
        one = self._build.constant(1.0, tf.float64)
        names = []
        for handle, value in zip(self._handles, (total, one)):
            self._build.op(
                "AssignAddVariableOp",
                [self._build.captured(handle), value],
                HOST,
                "compute_time",
                [self._build.started(HOST)],
            )
            names.append(self._build.writer.last)
        return names

    def _time(self, after: list[str]) -> Reference:
        (time,) = self._build.op("Timestamp", [], HOST, "compute_time", after)
        return time

    def _there(self, reference: Reference) -> str:
        """Returns the name of a host node that fires once a value is computed.

        On a GPU only a copy to the host waits for the value. One element is
        copied, so that the value's memory can be reused.
        """
        build = self._build
        if build.mesh.shares_memory and reference.device:
            return reference.node
        bounds = [build.constant([bound]) for bound in (0, 1, 1)]
        first = build.strided_slice(build.flat(reference), bounds)
        return build.op("Identity", [first], HOST)[0].node
