"""TensorFlow's log without a line for every collective.

In a notebook TensorFlow logs at `INFO`, and of each of its all-reduces says
where it runs ("Reduce to … then broadcast to …"), in the middle of Keras's
progress bar.
"""

import logging

import tensorflow as tf


class _NoCollectives(logging.Filter):
    """Leaves out such lines, unless the logger is set to `DEBUG`."""

    def filter(self, record):
        if tf.get_logger().level == logging.DEBUG:
            return True
        is_info = record.levelno == logging.INFO
        return not (is_info and record.module == "cross_device_ops")


_no_collectives = _NoCollectives()


def keep_short():
    """Leaves them out from now on; more than one call does no more."""
    tf.get_logger().addFilter(_no_collectives)
