"""What a recipe tells people: progress, the final table, the curve."""

import dataclasses
import statistics

from rich.console import Console
from rich.table import Table

# Enough to watch a run by; a run of thousands of epochs prints no more.
_PROGRESS_LINES = 20


@dataclasses.dataclass(frozen=True)
class Result:
    """The figures of a finished run, as `result.json` has them.

    Args:
        replicas: Copies of the model.
        devices: List of their device names.
        global_batch_size: Rows of a full step on all replicas.
        learning_rate: Full learning rate, scaled for the replicas.
        steps: Optimizer updates in all.
        seconds: Training time without tracing, validation and checkpoints.
        loss: Loss to compare with the published one, of the last epoch.
        rmse: Error on held-out data, after the last epoch.
        baseline_rmse: The same of the baseline.
        examples_per_second: Median over epochs, all replicas together; `None`
            where no step was left beside those that were traced.
        examples_per_second_per_replica: The same for one replica.
        data: One line that says what the data was.
    """

    replicas: int
    devices: list
    global_batch_size: int
    learning_rate: float
    steps: int
    seconds: float
    loss: float
    rmse: float
    baseline_rmse: float
    examples_per_second: float
    examples_per_second_per_replica: float
    data: str


def short_names(devices):
    """Device names without the job where all are of this process."""
    local = "/job:localhost/replica:0/task:0/device:"
    return [name.removeprefix(local) for name in devices]


def print_line(text):
    """Prints one line at once, also into a pipe."""
    print(text, flush=True)


def progress(epochs, names):
    """A function that prints some of an epoch's figures, now and then.

    Args:
        epochs: Epochs in all; about 20 of them are reported.
        names: Dictionary from the name of a figure in the logs to what people
            read.

    Returns:
        Function of the record of an epoch.
    """
    stride = max(1, round(epochs / _PROGRESS_LINES))

    def report(record):
        if record["epoch"] % stride and record["epoch"] != epochs:
            return
        figures = [
            f"{label} {record[name]:.4g}"
            for name, label in names.items()
            if record.get(name) is not None
        ]
        print_line(f"epoch {record['epoch']}/{epochs}: {', '.join(figures)}")

    return report


def median_of(history, name):
    """Median over epochs of a figure, or `None` where no epoch has it.

    An epoch of a single step may have no speed: that step was traced.
    """
    values = [record[name] for record in history if record[name] is not None]
    return statistics.median(values) if values else None


def print_table(result, loss_label):
    """Prints the final table: one row per figure.

    Args:
        result: A `Result`.
        loss_label: What `result.loss` is, in words.
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
        "held-out RMSE (stars)": f"{result.rmse:.4f}",
        "baseline RMSE (stars)": f"{result.baseline_rmse:.4f}",
        "examples/s": _rate(result.examples_per_second),
        "examples/s per replica": _rate(result.examples_per_second_per_replica),
    }
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for label, value in rows.items():
        table.add_row(label, str(value))
    Console().print(table)


def _rate(value):
    return "too few steps" if value is None else f"{value:,.0f}"


def draw_learning_curve(run_folder, history, baseline_rmse):
    """Draws the RMSE over epochs into `learning_curve.png`.

    Without matplotlib (the `report` extra) one line says so.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print_line(
            "no learning curve: matplotlib is not installed "
            "(pip install kerasmgpu[report])"
        )
        return
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    epochs = [record["epoch"] for record in history]
    for name, label in (("rmse", "training"), ("val_rmse", "held out")):
        axes.plot(epochs, [record[name] for record in history], label=label)
    axes.axhline(baseline_rmse, linestyle="--", color="gray", label="baseline")
    axes.set_xlabel("epoch")
    axes.set_ylabel("RMSE (stars)")
    axes.legend()
    with run_folder.complete("learning_curve.png") as temporary:
        figure.savefig(temporary, dpi=150)
