"""What a recipe tells people: progress, the final table, the curve."""

import dataclasses
import math
import statistics
import time

from rich.table import Table
from rich.text import Text

from kerasmgpu.commands import plots, reports
from kerasmgpu.job import workers

_FEW_EPOCHS = 20  # All of them are reported.
_SECONDS_BETWEEN_LINES = 10.0  # Of more epochs than these.


@dataclasses.dataclass(frozen=True)
class Result:
    """The figures of a finished run, as `result.json` has them.

    `seconds` is the training time without tracing, validation and checkpoints;
    `loss` the one to compare with the published one, of the last epoch;
    `examples_per_second` the median over epochs of all replicas together,
    `None` where no step was left beside those that were traced; `data` one line
    that says what the data was; `figures` those that only this recipe has.
    """

    replicas: int
    devices: list
    global_batch_size: int
    learning_rate: float
    steps: int
    seconds: float
    loss: float
    examples_per_second: float
    examples_per_second_per_replica: float
    data: str
    figures: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Curve:
    """What the learning curve shows.

    `axis` is what the figures are, in words; `figures` maps names in the
    records of epochs to labels; `reference` is a level to compare with, drawn
    dashed.
    """

    axis: str
    figures: dict
    reference: float | None = None
    reference_label: str = "baseline"


def short_names(strategy):
    """Short device names, `["GPU:0", "GPU:1"]`, of each worker."""
    names = [
        path.rsplit("device:", 1)[-1]
        for path in strategy.extended.worker_devices
    ]
    num_workers = workers.count(strategy)
    if num_workers > 1:
        names[-1] += f" of each of {num_workers} workers"
    return names


def print_line(text):
    """Prints one line at once, also into a pipe."""
    print(text, flush=True)


def progress(epochs, names, clock=time.monotonic):
    """Returns a function that prints figures of an epoch's record.

    Of more than 20 epochs it prints the first, the last, and one every ten
    seconds.

    Args:
        epochs: Epochs in all.
        names: Dictionary from the name of a figure in the logs to what people
            read; where the final table has it too, under the same name.
        clock: Function that returns the time in seconds.
    """
    due = -math.inf

    def report(record):
        nonlocal due
        now = clock()
        if epochs > _FEW_EPOCHS and record["epoch"] != epochs and now < due:
            return
        due = now + _SECONDS_BETWEEN_LINES
        figures = [
            f"{label} {_short(record[name])}"
            for name, label in names.items()
            if record.get(name) is not None
        ]
        print_line(f"epoch {record['epoch']}/{epochs}: {', '.join(figures)}")

    return report


def _short(value):
    """Four digits; of large numbers the whole part."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def median_of(history, name):
    """Median over epochs of a figure, or `None` where no epoch has it."""
    values = [record[name] for record in history if record[name] is not None]
    return statistics.median(values) if values else None


def print_table(result, loss_label, labels):
    """Prints the final table of a `Result`: one row per figure.

    Args:
        result: A `Result`.
        loss_label: What `result.loss` is, in words.
        labels: Dictionary from the names in `result.figures` to words.
    """
    rows = {
        "data": result.data,
        "replicas": result.replicas,
        "devices": ", ".join(result.devices),
        "global batch (rows)": result.global_batch_size,
        "learning rate": f"{result.learning_rate:g}",
        "steps": result.steps,
        "training time (s)": f"{result.seconds:.2f}",
        loss_label: f"{result.loss:.5f}",
        **{
            labels[name]: f"{value:.4f}" if isinstance(value, float) else value
            for name, value in result.figures.items()
        },
        "examples/s (median epoch)": _rate(result.examples_per_second),
        "the same per replica": _rate(result.examples_per_second_per_replica),
    }
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, value in rows.items():
        # What a file or a user named is no markup, whatever its brackets.
        table.add_row(label, Text(str(value)))
    reports.console().print(table)


def _rate(value):
    return "too few steps" if value is None else f"{value:,.0f}"


def draw_learning_curve(run_folder, history, curve):
    """Draws a `Curve` over the records into `learning_curve.png`."""
    figure = plots.new_figure()
    if figure is None:
        return
    axes = figure.add_subplot()
    epochs = [record["epoch"] for record in history]
    for name, label in curve.figures.items():
        # matplotlib leaves a gap where a figure is NaN.
        values = [
            math.nan if record.get(name) is None else record[name]
            for record in history
        ]
        plots.line(axes, epochs, values, label=label)
    if curve.reference is not None:
        axes.axhline(
            curve.reference,
            linestyle="--",
            color="gray",
            label=curve.reference_label,
        )
    plots.epoch_axis(axes)
    axes.set_ylabel(curve.axis)
    axes.legend()
    plots.save(figure, run_folder.path / "learning_curve.png")
