"""Removes TensorFlow's log line per collective.

In a notebook TensorFlow logs at `INFO`, with a line for each all-reduce
("Reduce to … then broadcast to …") in the middle of Keras's progress bar.
"""

import logging

import tensorflow as tf


class _NoCollectives(logging.Filter):
    """Drops the lines on collectives, unless the logger is set to `DEBUG`."""

    def filter(self, record: logging.LogRecord) -> bool:
        if tf.get_logger().level == logging.DEBUG:
            return True
        is_info = record.levelno == logging.INFO
        return not (is_info and record.module == "cross_device_ops")


_no_collectives = _NoCollectives()


def install() -> None:
    """Installs the filter; idempotent."""
    tf.get_logger().addFilter(_no_collectives)
