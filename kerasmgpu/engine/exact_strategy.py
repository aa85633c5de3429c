"""Recognises our strategies."""

import tensorflow as tf


def is_ours(strategy: tf.distribute.Strategy | None) -> bool:
    """Whether a strategy trains exactly, i.e. is one of kerasmgpu's."""
    return hasattr(strategy, "run_on_one_device")
