"""Predicts how many micro-batches `micro_batches="auto"` begins with."""

import os

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu.engine.feeds import Feed
from kerasmgpu.memory import counting, memory_advice
from kerasmgpu.memory.memory_report import size
from kerasmgpu.strategies.auto_layouts import AutoLayouts


def first_micro_batches(model: keras.Model, feed: Feed) -> int:
    """Returns the fewest micro-batches that fit, as `memory` predicts.

    Returns 1 if nothing can be predicted: the device's memory or the rows are
    unknown, the batch is not dense, or `shard` is a function. If nothing fits,
    returns the number that needs least memory.

    Args:
        model: `keras.Model` in training under one of our strategies.
        feed: `Feed` of its steps.

    Returns:
        Integer, a power of two, or the rows of a replica.
    """
    strategy = model.distribute_strategy
    setting = memory_advice.setting_of(model)
    limit = setting.limit
    if limit is None:
        _say_what_auto_needs(strategy)
        return 1
    rows, specification = memory_advice.rows_of(feed), feed.batch_specification
    is_dense = memory_advice.are_dense(specification)
    is_found_later = isinstance(setting.layouts, AutoLayouts)
    if (
        rows is None
        or not is_dense
        or is_found_later
        or callable(setting.shard)
    ):
        return 1
    step = memory_advice.traced(model, specification, rows)
    (found,) = counting.settings(step, setting, None)
    parts = int(found["micro_batches"])
    logging.info(
        "kerasmgpu: micro_batches='auto' begins with %d: %s of %s are "
        "predicted.",
        parts,
        size(found["total"]),
        size(limit),
    )
    return parts


def _say_what_auto_needs(strategy: tf.distribute.Strategy) -> None:
    is_limited = "TF_MKL_ALLOC_MAX_BYTES" in os.environ  # oneDNN's limit.
    if "CPU" in strategy.extended.worker_devices[0] and not is_limited:
        logging.warning(
            "kerasmgpu: micro_batches='auto' can't help on a CPU without a "
            "limit: where memory runs out the process ends, and no step is "
            "repeated. Set micro_batches to a number, or "
            "TF_CPU_ALLOCATOR_USE_BFC=true and TF_CPU_BFC_MEM_LIMIT_IN_MB."
        )
