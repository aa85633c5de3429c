"""What a worker needs for its own part of a step, without waiting for others.

All workers finish a step together, so the time of whole steps doesn't show
which one is slow. The time from having the batch to having the gradients does,
less what passes in collectives on the way.
"""

import tensorflow as tf


class OwnTime:
    """Adds up the seconds in which a worker's first replica computes."""

    def __init__(self):
        with tf.device("CPU:0"):
            self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._steps = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def start(self, tensor):
        """Time at which `tensor` is there and computing begins."""
        with tf.device("CPU:0"), tf.control_dependencies([_on_host(tensor)]):
            return tf.timestamp()

    def pause(self, started, tensors):
        """Adds the seconds until all tensors are there.

        Args:
            started: What `start` returned.
            tensors: List of tensors, `tf.IndexedSlices` or `None`.
        """
        tensors = [tensor for tensor in tensors if tensor is not None]
        with tf.device("CPU:0"):
            with tf.control_dependencies([_on_host(t) for t in tensors]):
                seconds = tf.timestamp() - started
            self._seconds.assign_add(seconds)

    def end_step(self, started, gradients):
        """Adds the seconds until the gradients are there; a step is done."""
        self.pause(started, gradients)
        with tf.device("CPU:0"):
            self._steps.assign_add(1.0)

    def take(self):
        """Mean seconds per step since the last call, NaN without a step."""
        steps = float(self._steps.numpy())
        seconds = float(self._seconds.numpy())
        self._steps.assign(0.0)
        self._seconds.assign(0.0)
        return seconds / steps if steps else float("nan")


def _on_host(tensor):
    """One element: on a GPU only a copy to the host waits for the value."""
    value = getattr(tensor, "values", tensor)
    return tf.identity(tf.reshape(value, [-1])[:1])
