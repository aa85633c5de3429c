"""What a worker needs for its own part of a step, before it waits for others.

All workers finish a step together, so the time of whole steps doesn't show
which one is slow. The time from having the batch to having the gradients does.
"""

import tensorflow as tf


class OwnTime:
    """Adds up the seconds from batch to gradients, on the first replica."""

    def __init__(self):
        with tf.device("CPU:0"):
            self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
            self._steps = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def start(self, batch_is_there):
        """Time at which a step can begin.

        Args:
            batch_is_there: A tensor that is made from the batch.
        """
        with tf.device("CPU:0"), tf.control_dependencies([batch_is_there]):
            return tf.timestamp()

    def note(self, started, gradients):
        """Notes that the gradients are there.

        Args:
            started: What `start` returned.
            gradients: List of tensors, `tf.IndexedSlices` or `None`.
        """
        values = [
            getattr(gradient, "values", gradient)
            for gradient in gradients
            if gradient is not None
        ]
        # On a GPU only a copy to the host is there when it was computed.
        with tf.device("CPU:0"):
            with tf.control_dependencies(
                [tf.identity(tf.reshape(value, [-1])[:1]) for value in values]
            ):
                seconds = tf.timestamp() - started
            self._seconds.assign_add(seconds)
            self._steps.assign_add(1.0)

    def take(self):
        """Mean seconds per step since the last call, NaN without a step."""
        steps = float(self._steps.numpy())
        seconds = float(self._seconds.numpy())
        self._steps.assign(0.0)
        self._seconds.assign(0.0)
        return seconds / steps if steps else float("nan")
