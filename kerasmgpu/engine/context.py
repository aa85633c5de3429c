"""Reads and sets TensorFlow's process-wide eager context and logger."""

import logging
import random

import tensorflow as tf

from kerasmgpu.engine.private_names import context, pywrap_tfe


def has_started() -> bool:
    """Whether TensorFlow is initialised; this process can't join a job then."""
    return context.context()._context_handle is not None


_why_aborted: str | None = None


def abort_collectives(message: str) -> None:
    """Makes all pending and future collectives raise `UnavailableError`."""
    global _why_aborted
    _why_aborted = message
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, message)


def require_collectives() -> None:
    """Raises `UnavailableError` if collectives are aborted."""
    if _why_aborted is not None:
        raise tf.errors.UnavailableError(None, None, _why_aborted)


def abort_step() -> None:
    """Makes pending collectives raise, until `reset_collectives`."""
    context.context().abort_collective_ops(
        tf.errors.RESOURCE_EXHAUSTED, "A worker ran out of memory."
    )


def reset_collectives() -> None:
    """Makes collectives usable again after `abort_step`.

    Enabling collectives again creates a new executor (TensorFlow 2.18 to 2.21).
    """
    current = context.context()
    server = current._collective_ops_server_def.SerializeToString()
    pywrap_tfe.TFE_EnableCollectiveOps(current._context_handle, server)


def global_seed() -> int | None:
    """Returns the seed of `tf.random.set_seed`, or `None`; draws no number."""
    return context.global_seed()


def operation_seeds() -> random.Random | None:
    """Returns the generator of operations' seeds; `None` if no seed is set."""
    return getattr(context.context(), "_rng", None)


class _NoCollectives(logging.Filter):
    """Drops the lines on collectives, unless the logger is set to `DEBUG`.

    In a notebook TensorFlow logs at `INFO`, with a line for each all-reduce
    ("Reduce to … then broadcast to …") in the middle of Keras's progress bar.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if tf.get_logger().level == logging.DEBUG:
            return True
        is_info = record.levelno == logging.INFO
        return not (is_info and record.module == "cross_device_ops")


_no_collectives = _NoCollectives()


def quiet_collectives() -> None:
    """Removes TensorFlow's log line per collective; idempotent."""
    tf.get_logger().addFilter(_no_collectives)
