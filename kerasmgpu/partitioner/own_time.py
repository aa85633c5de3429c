"""What a worker needs for its own part of a step, without waiting for others.

All workers finish a step together, so the time of whole steps doesn't show
which one is slow. The time from the batch, or from the last collective, to when
the next collective has what it sends, does.
"""

import tensorflow as tf

from kerasmgpu.partitioner.places import HOST
from kerasmgpu.partitioner.writing import node_name


class OwnTime:
    """Adds up the seconds in which a worker's first replica computes."""

    def __init__(self):
        with tf.device("CPU:0"):
            self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._steps = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def clock(self, build):
        """A clock that is written into a function of steps."""
        return _Clock(build, self._seconds.handle, self._steps.handle)

    def take(self):
        """Mean seconds per step since the last call, NaN without a step."""
        steps = float(self._steps.numpy())
        seconds = float(self._seconds.numpy())
        self._steps.assign(0.0)
        self._seconds.assign(0.0)
        return seconds / steps if steps else float("nan")


class _Clock:
    """The operations that measure one function.

    Args:
        build: The `building.Build` of the function.
        seconds: Handle of the variable that seconds are added to.
        steps: Handle of the variable that steps are counted in.
    """

    def __init__(self, build, seconds, steps):
        self._build = build
        self._handles = seconds, steps
        self._free_since = None
        self._spans = []

    def ready(self, reference, dtype):
        """Notes that a collective has what it sends."""
        if self._free_since is None:
            self._free_since = self._time([self._build.started(HOST)])
        now = self._time([self._there(reference, dtype)])
        span = self._op("Sub", now, self._free_since)
        zero = self._build.constant(0.0, tf.float64, HOST)
        self._spans.append(self._op("Maximum", span, zero))

    def done(self, reference, dtype):
        """Notes that a collective is over."""
        self._free_since = self._time([self._there(reference, dtype)])

    def finish(self):
        """Writes the sums down; returns names of nodes that must run."""
        if not self._spans:
            return []
        total = self._spans[0]
        for span in self._spans[1:]:
            total = self._op("AddV2", total, span)
        one = self._build.constant(1.0, tf.float64, HOST)
        names = []
        for handle, value in zip(self._handles, (total, one)):
            self._build.op(
                "AssignAddVariableOp",
                [self._build.captured(handle), value],
                {"dtype": tf.float64},
                HOST,
                "own_time",
                [self._build.started(HOST)],
            )
            names.append(self._build.writer.last)
        return names

    def _time(self, after):
        return self._build.op("Timestamp", [], {}, HOST, "own_time", after)[0]

    def _there(self, reference, dtype):
        """Name of a node on the host that has run when a value is there.

        On a GPU only a copy of an element to the host waits for the value. What
        reads a value keeps others from using its memory again.
        """
        build = self._build
        if build.replicas.shares_memory and build.writer.device(reference):
            return node_name(reference)
        place = build.place_of(reference)
        flat = build.flat(reference, dtype, place)
        bounds = [build.constant([n], tf.int32, HOST) for n in (0, 1, 1)]
        first = build.strided_slice(flat, *bounds, dtype, place)
        on_host = build.op("Identity", [first], {"T": dtype}, HOST)[0]
        return node_name(on_host)

    def _op(self, type, *inputs):
        return self._build.sizes.op(type, *inputs, dtype=tf.float64)
