"""A run's final table and learning curve."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from kerasmgpu.commands import plots, reports
from kerasmgpu.commands.fitted_table import FittedTable
from kerasmgpu.job import workers
from kerasmgpu.recipes.shared.run_folder import RunFolder

if TYPE_CHECKING:
    import tensorflow as tf

Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Result:
    """The figures of a finished run, as `result.json` has them.

    `seconds` is the training time without tracing, validation and checkpoints;
    `loss` is that of the last epoch; `examples_per_second` the median over
    epochs of all replicas together, `None` if all steps were traced; `data`
    describes the data; `figures` are the recipe's own.
    """

    replicas: int
    devices: list[str]
    global_batch_size: int
    learning_rate: float
    steps: int
    seconds: float
    loss: float
    examples_per_second: float | None
    examples_per_second_per_replica: float | None
    data: str
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Curve:
    """A learning curve: label of the y axis, labels of the figures to draw.

    `reference` is a level to compare with, drawn dashed.
    """

    axis: str
    figures: dict[str, str]
    reference: float | None = None
    reference_label: str = "baseline"


def short_names(strategy: "tf.distribute.Strategy") -> list[str]:
    """Short device names, `["GPU:0", "GPU:1"]`, of each worker."""
    paths = strategy.extended.worker_devices
    names = [path.rsplit("device:", 1)[-1] for path in paths]
    if (num_workers := workers.count(strategy)) > 1:
        names[-1] += f" of each of {num_workers} workers"
    return names


def print_line(text: str) -> None:
    print(text, flush=True)  # At once, also into a pipe.


def median_of(history: Sequence[Record], name: str) -> float | None:
    """Median of a figure over the epochs that have it, or `None`."""
    values = [record[name] for record in history if record[name] is not None]
    return statistics.median(values) if values else None


def print_table(
    result: Result,
    loss_label: str,
    labels: Mapping[str, str],
    notes: Mapping[str, str] | None = None,
) -> None:
    """Prints a `Result`; `labels` and `notes` are those of `result.figures`.

    A note says why a figure that looks wrong may be right.
    """
    speeds = (
        result.examples_per_second,
        result.examples_per_second_per_replica,
    )
    all_replicas, one_replica = (
        "too few steps" if speed is None else f"{speed:,.0f}"
        for speed in speeds
    )
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
            labels[name]: _figure(value, (notes or {}).get(name))
            for name, value in result.figures.items()
        },
        "examples/s (median epoch)": all_replicas,
        "examples/s per replica": one_replica,
    }
    table = FittedTable("", ["", ""], has_headings=False)
    for label, value in rows.items():
        # Names of files and users are no markup, whatever their brackets.
        table.add_row(label, Text(str(value)))
    reports.console().print(table)


def _figure(value: Any, note: str | None) -> str:
    text = f"{value:.4f}" if isinstance(value, float) else str(value)
    return text if note is None else f"{text} ({note})"


def draw_learning_curve(
    run_folder: RunFolder, history: Sequence[Record], curve: Curve
) -> None:
    """Draws the records of epochs into `learning_curve.png`."""
    figure = plots.new_figure()
    if figure is None or run_folder.path is None:
        return
    axes = figure.add_subplot()
    epochs = [record["epoch"] for record in history]
    for name, label in curve.figures.items():
        # matplotlib leaves a gap where a figure is None.
        values: Any = [record.get(name) for record in history]
        plots.line(axes, epochs, values, label=label)
    if curve.reference is not None:
        label = curve.reference_label
        axes.axhline(curve.reference, label=label, ls="--", color="gray")
    plots.epoch_axis(axes)
    axes.set_ylabel(curve.axis)
    axes.legend()
    plots.save(figure, run_folder.path / "learning_curve.png")
