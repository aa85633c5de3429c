"""Suggests a learning rate; the plot."""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from kerasmgpu import atomic_files
from kerasmgpu.commands import plots
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_integer,
    checked_number,
    checked_path,
)
from kerasmgpu.finders import learning_rate_choice as choice

if TYPE_CHECKING:
    from kerasmgpu.finders.range_test import RangeTest


_ROUNDING = 1e-6
"""Relative fall of a loss that may be rounding, in float32."""


@dataclasses.dataclass(frozen=True)
class LearningRates:
    """Result of `find_learning_rate`; `str()` is one line.

    Attributes:
        suggestion: Float, the rate in the middle of the longest valley of the
            smoothed losses; `None` if the loss never fell.
        steepest: Float, the rate in that valley where the smoothed loss falls
            fastest, or `None`.
        minimum: Float, the rate of the least smoothed loss, which is too
            large; a tenth of it is another common choice. Or `None`.
        diverged: Boolean, whether the loss diverged before `high`.
        learning_rates: List of floats, those of the steps.
        losses: List of floats, the loss of each step.
        smoothed: List of floats, their moving average.
    """

    suggestion: float | None
    steepest: float | None
    minimum: float | None
    diverged: bool
    learning_rates: list[float]
    losses: list[float]
    smoothed: list[float]

    def __str__(self) -> str:
        low, high = self.learning_rates[0], self.learning_rates[-1]
        if self.suggestion is None or self.minimum is None:
            return (
                f"no learning rate: the loss did not fall from {low:.2g} to "
                f"{high:.2g}; try a smaller low, more steps or a larger batch"
            )
        return (
            f"learning rate: {self.suggestion:.2g} (middle of the longest "
            f"valley); the loss falls fastest at {self.steepest:.2g}, and a "
            f"tenth of its minimum's is {self.minimum / 10:.2g}"
        )


@checked_arguments
def find_learning_rate(
    model: Any,
    data: Any,
    *,
    global_batch_size: int = 32,
    low: float = 1e-7,
    high: float = 10.0,
    steps: int = 100,
    smoothing: float = 0.98,
    divergence: float = 4.0,
    seed: int = 0,
    plot: str | os.PathLike[str] | None = None,
    show: bool = True,
) -> LearningRates:
    """Suggests a learning rate by a range test, and restores the model.

    Trains with a rate that grows exponentially from step to step, until the
    smoothed loss diverges (Smith, arXiv:1506.01186, section 3.3; with
    exponential steps and the smoothing of fastai's `lr_find`, whose suggestions
    these are). The rate is for this global batch size, on any number of
    replicas: losses are those of one device.

    Weights, the optimizer, its schedule and RNG state are then as before;
    metrics are reset. A schedule and callbacks have no effect meanwhile. Not
    restored is what can't be read: random ops with a state of their own
    (`tf.random.uniform`), and the seeds that a data set's `shuffle` draws for
    each pass.

    Under several workers, all must call it, with the same arguments.

    Args:
        model: Compiled and built `keras.Model` with one optimizer, under any
            strategy or none.
        data: Arrays `x`, `(x, y)` or `(x, y, sample_weight)` (nests), or global
            batches: a `tf.data.Dataset` or a `keras.utils.PyDataset`. They are
            repeated as needed.
        global_batch_size: Integer, rows of a batch of arrays, which are
            shuffled. Defaults to 32.
        low: Float, the first rate. Defaults to 1e-7.
        high: Float, the last rate. Defaults to 10.
        steps: Integer of at least 10, rates to try, each for one execution of
            the model's `steps_per_execution`. Defaults to 100.
        smoothing: Float from 0, below 1: weight of the past in the moving
            average of losses. Defaults to 0.98.
        divergence: Float above 1: the test stops when the smoothed loss is so
            many times its minimum. Defaults to 4.
        seed: Integer, seed of the order of arrays. Defaults to 0.
        plot: Path of a PNG file of the losses. Default: none.
        show: Boolean, whether to print the suggestion. Defaults to `True`.

    Returns:
        `LearningRates`.

    Raises:
        InputError: If the model has no variables or no single optimizer, the
            data can't be read again, or an argument is invalid.

    Example:

    ```python
    found = kerasmgpu.find_learning_rate(model, (x, y), global_batch_size=64)
    if found.suggestion is not None:
        model.optimizer.learning_rate = found.suggestion
    ```
    """
    check(low, high, steps, smoothing, divergence)
    if plot is not None:
        atomic_files.require_place(checked_path(plot, "plot"), "plot")
    from kerasmgpu.finders import range_test  # TensorFlow is loaded here.
    from kerasmgpu.job import workers

    rates = [low * (high / low) ** (n / (steps - 1)) for n in range(steps)]
    test = range_test.RangeTest(rates, smoothing, divergence)
    range_test.run(test, model, data, global_batch_size, seed)
    found = _result(rates, test)
    is_first = workers.is_first(model.distribute_strategy)
    if show and is_first:
        print(found, flush=True)
    if plot is not None and is_first:
        _draw(found, model.name, plot)
    return found


def check(
    low: float, high: float, steps: int, smoothing: float, divergence: float
) -> None:
    """Raises `InputError` if a setting of `find_learning_rate` is invalid."""
    if checked_number(high, "high") <= checked_number(low, "low"):
        raise InputError(
            f"high must be above low. Received: low={low:g}, high={high:g}"
        )
    checked_integer(steps, "steps", 10)
    if not 0 <= checked_number(smoothing, "smoothing", True) < 1:
        raise InputError(
            "smoothing must be a number of at least 0, below 1. Received: "
            f"smoothing={smoothing!r}"
        )
    if checked_number(divergence, "divergence") <= 1:
        raise InputError(
            "divergence must be a number above 1. Received: "
            f"divergence={divergence!r}"
        )


def _result(rates: list[float], test: "RangeTest") -> LearningRates:
    if not test.losses:
        raise InputError(
            "the loss of the first step is not finite"
            if test.diverged
            else "the data are empty; at least one batch is needed"
        )
    # The first tenth varies too much, since few losses are averaged.
    start, end = len(test.losses) // 10, len(test.losses)
    tried, smoothed = rates[start:end], test.smoothed[start:]
    least = smoothed.index(min(smoothed))
    fall = smoothed[0] - smoothed[least]
    first, last = choice.longest_valley(smoothed)
    suggestion = fastest = minimum = None
    if fall > _ROUNDING * abs(smoothed[0]):
        suggestion = tried[(first + last) // 2]
        fastest = tried[choice.steepest(tried, smoothed, first, last)]
        minimum = tried[least]
    return LearningRates(
        suggestion,
        fastest,
        minimum,
        diverged=test.diverged,
        learning_rates=rates[:end],
        losses=test.losses,
        smoothed=test.smoothed,
    )


def _draw(
    found: LearningRates, model: str, path: str | os.PathLike[str]
) -> None:
    figure = plots.new_figure()
    if figure is None:
        return
    axes = figure.add_subplot()
    rates = found.learning_rates
    axes.plot(rates, found.losses, color="lightgray", label="loss")
    axes.plot(rates, found.smoothed, label="smoothed")
    if found.suggestion is not None:
        axes.axvline(
            found.suggestion,
            linestyle="--",
            color="gray",
            label=f"suggestion: {found.suggestion:.2g}",
        )
    # Losses that diverge would hide the rest.
    least = min(found.smoothed)
    most = max(found.smoothed[: found.smoothed.index(least) + 1])
    margin = (most - least) / 2 or abs(least)
    axes.set_ylim(least - margin, most + margin)
    axes.set_xscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.set_title(model, size=8)
    axes.legend()
    plots.save(figure, path)
