"""Figures of an image run: accuracy, and the limit of its speed."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu.callbacks.throughput import median_speed
from kerasmgpu.recipes.alexnet.left_out import LeftOutImages
from kerasmgpu.recipes.shared import run_report

History = Sequence[Mapping[str, Any]]
Figures = dict[str, tuple[str, Any]]  # As `TrainingRun.finish` takes them.

# Share of the speed without images from which on training is compute-bound.
_COMPUTE_BOUND = 0.9


def of(history: History, left_out: LeftOutImages) -> Figures:
    """Accuracies, the wait for input and the images left out."""
    last = history[-1]
    figures = {"train_accuracy": ("training accuracy", last["accuracy"])}
    if "val_accuracy" in last:
        figures["accuracy"] = ("held-out accuracy", last["val_accuracy"])
    wait = run_report.median_of(history, "input_wait_share")
    if wait is not None:
        figures["input_wait_share"] = ("share of time waiting for input", wait)
    names = left_out.names
    if names:
        text = f"{len(names)}, such as {min(names)}; {left_out.where_all_are}"
        figures["left_out"] = ("images left out", text)
    return figures


def comparison(
    history: History, alone: keras.Model, made_up: tf.data.Dataset
) -> Figures:
    """Compares the run with `alone`, the same on synthetic images."""
    speed = median_speed(alone, made_up, epochs=3, steps_per_epoch=20)
    figures: Figures = {
        "synthetic_examples_per_second": ("examples/s, no input", speed)
    }
    real = run_report.median_of(history, "examples_per_second")
    if real is not None:
        figures["real_over_synthetic"] = ("speed with input", real / speed)
        figures["limit"] = ("what sets the pace", verdict(real, speed))
    return figures


def verdict(real: float, alone: float) -> str:
    """Says whether input or computing limits the examples per second."""
    share = real / alone
    limit = "compute" if share >= _COMPUTE_BOUND else "input"
    return f"{limit}-bound: {share:.0%} of the examples/s without input"
