"""Table and plot of the study of batch sizes; the smallest comes first."""

import statistics

from rich.table import Table

from kerasmgpu.commands import plots, reports


def summary(records, size, label):
    """Mean and deviation of the accuracy over seeds, or `None`: no such run."""
    values = [
        record["accuracy"]
        for record in records
        if (record["global_batch_size"], record["rule"]) == (size, label)
    ]
    if not values:
        return None
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.mean(values), spread


def rows(records, sizes, labels):
    """Cells of the table: one list for each batch size.

    All rules are the same at the smallest batch, which was trained once.
    """
    for size in sizes:
        cells = [f"{size}"]
        for label in labels:
            found = summary(records, size, label)
            if found is None:
                found = summary(records, size, labels[0])
            cells.append(f"{100 * found[0]:.1f} ± {100 * found[1]:.1f}")
        yield cells


def print_table(records, sizes, labels):
    """Prints held-out accuracy in per cent, by batch size and rule."""
    table = Table(title="held-out accuracy (%), mean ± deviation over seeds")
    table.add_column("global batch", justify="right")
    for label in labels:
        table.add_column(label, justify="right")
    for cells in rows(records, sizes, labels):
        table.add_row(*cells)
    reports.console().print(table)


def draw(run_folder, records, sizes, labels):
    """Draws the table into `accuracy_by_batch.png`."""
    figure = plots.new_figure()
    if figure is None:
        return
    axes = figure.add_subplot()
    smallest = summary(records, sizes[0], labels[0])
    for label in labels:
        points = [summary(records, size, label) for size in sizes[1:]]
        means, spreads = zip(smallest, *points)
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
