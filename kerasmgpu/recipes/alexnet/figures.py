"""Figures of an image run: accuracy, and the limit of its speed."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from kerasmgpu.recipes.alexnet import synthetic
from kerasmgpu.recipes.alexnet.left_out import LeftOutImages
from kerasmgpu.recipes.shared import run_report
from kerasmgpu.recipes.shared.training_plan import TrainingPlan

History = Sequence[Mapping[str, Any]]
Figures = dict[str, tuple[str, Any]]

# Share of the speed without images from which on training is compute-bound.
_COMPUTE_BOUND = 0.9


def of(history: History, left_out: LeftOutImages) -> Figures:
    """Figures for `TrainingRun.finish`."""
    last = history[-1]
    figures: Figures = {
        "train_accuracy": ("training accuracy", last["accuracy"])
    }
    if "val_accuracy" in last:
        figures["accuracy"] = ("held-out accuracy", last["val_accuracy"])
    wait = run_report.median_of(history, "input_wait_share")
    if wait is not None:
        figures["input_wait_share"] = ("share of time waiting for input", wait)
    names = left_out.names
    if names:
        figures["left_out"] = (
            "images left out",
            f"{len(names)}, such as {min(names)}; {left_out.where_all_are}",
        )
    return figures


def comparison(
    history: History,
    model_alone: keras.Model,
    plan: TrainingPlan,
    num_classes: int,
) -> Figures:
    """Compares the run with a network that makes up its images."""
    alone = synthetic.examples_per_second(
        model_alone, plan.global_batch_size, num_classes
    )
    real = run_report.median_of(history, "examples_per_second")
    figures: Figures = {
        "synthetic_examples_per_second": ("examples/s, no input", alone)
    }
    if real is not None:
        figures["real_over_synthetic"] = ("speed with input", real / alone)
        figures["limit"] = ("what sets the pace", verdict(real, alone))
    return figures


def verdict(real: float, alone: float) -> str:
    """Says whether input or computing limits the examples per second."""
    share = real / alone
    limit = "compute" if share >= _COMPUTE_BOUND else "input"
    return f"{limit}-bound: {share:.0%} of the examples/s without input"
