"""Table and plot of the study of batch sizes; sizes are rising."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from kerasmgpu.commands import plots, reports
from kerasmgpu.recipes.shared.run_folder import RunFolder

Records = Sequence[Mapping[str, Any]]


def summary(
    records: Records, size: int, label: str
) -> tuple[float, float] | None:
    """Mean and deviation of the accuracy over seeds; `None` without runs."""
    values = [
        record["accuracy"]
        for record in records
        if (record["global_batch_size"], record["rule"]) == (size, label)
    ]
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.mean(values), spread


def rows(
    records: Records, sizes: Sequence[int], labels: Sequence[str]
) -> Iterator[list[str]]:
    """Cells of the table: a list per batch size.

    At the smallest batch all rules agree: it was trained once.
    """
    for size in sizes:
        cells = [f"{size}"]
        for label in labels:
            found = summary(records, size, label)
            mean, spread = found or summary(records, size, labels[0]) or (0, 0)
            cells.append(f"{100 * mean:.1f} ± {100 * spread:.1f}")
        yield cells


def print_table(
    records: Records, sizes: Sequence[int], labels: Sequence[str]
) -> None:
    """Prints held-out accuracy in per cent, by batch size and rule."""
    table = Table(title="held-out accuracy (%), mean ± deviation over seeds")
    table.add_column("global batch", justify="right")
    for label in labels:
        table.add_column(label, justify="right")
    for cells in rows(records, sizes, labels):
        table.add_row(*cells)
    reports.console().print(table)


def draw(
    run_folder: RunFolder,
    records: Records,
    sizes: Sequence[int],
    labels: Sequence[str],
) -> None:
    """Draws the table into `accuracy_by_batch.png`."""
    figure = plots.new_figure()
    if figure is None or run_folder.path is None:
        return
    axes = figure.add_subplot()
    smallest = summary(records, sizes[0], labels[0])
    for label in labels:
        points = [summary(records, size, label) for size in sizes[1:]]
        means, spreads = zip(*filter(None, [smallest, *points]))
        axes.errorbar(
            sizes,
            [100 * mean for mean in means],
            [100 * spread for spread in spreads],
            label=label,
            marker="o",
            capsize=3,
        )
    plots.count_axis(axes, sizes, "global batch (rows)")
    axes.set_ylabel("held-out accuracy (%)")
    axes.legend()
    plots.save(figure, run_folder.path / "accuracy_by_batch.png")
