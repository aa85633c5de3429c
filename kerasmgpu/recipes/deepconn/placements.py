"""A comparison of placements: devices, time, copies and tables."""

import dataclasses
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf
from rich.text import Text

from kerasmgpu import placement
from kerasmgpu.commands import reports
from kerasmgpu.engine import devices as device_choice
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.deepconn import towers
from kerasmgpu.recipes.shared import run_report, training_run
from kerasmgpu.stores.places import place

# Longest operations to print of each placement.
_MOST_OPERATIONS = 5

_CPU_NOTE = (
    "Logical CPU devices share cores and memory. The number of copies (of single "
    "numbers too) is that of the graph, as GPUs would have it; their time is that "
    "of handing over a pointer, and seconds per epoch say nothing about GPUs."
)


@dataclasses.dataclass(frozen=True)
class Profile:
    """The `kerasmgpu.placement.copies.Copies` of some steps."""

    steps: int
    measured: Any


@dataclasses.dataclass(frozen=True)
class Row:
    """Result of one placement, and the `Profile` of further steps."""

    placement: str
    seconds_per_epoch: float
    profile: Profile | None
    result: run_report.Result


def choose_devices(settings: SimpleNamespace) -> list[str]:
    """Names of the devices that the placements of a run need.

    Without a GPU, logical CPU devices are used instead, and a line is printed
    that says so.
    """
    name = settings.placement
    needed = 1 if name in ("single", "data_parallel") else 2
    if name in ("all", "data_parallel"):
        needed = max(needed, settings.num_replicas or 1)
    virtual_devices = settings.virtual_devices
    spread = name in ("all", "dual", "exaggerated")
    has_gpu = bool(tf.config.list_physical_devices("GPU"))
    if virtual_devices is None and spread and not has_gpu:
        (cpu,) = tf.config.list_physical_devices("CPU")
        configured = tf.config.get_logical_device_configuration(cpu) or [None]
        if len(configured) < needed:
            virtual_devices = needed
            run_report.print_line(
                f"no GPU is visible: {needed} logical CPU devices stand in"
            )
    visible = device_choice.choose(virtual_devices=virtual_devices)
    if len(visible) < needed:
        raise InputError(
            f"--placement={name} needs {needed} device(s), but "
            f"{device_choice.describe(visible)}; pass "
            f"--virtual_devices={needed} to run on logical CPU devices"
        )
    if name == "data_parallel" and settings.num_replicas is None:
        return visible
    return visible[:needed]


def settings_of_each(settings: SimpleNamespace) -> list[SimpleNamespace]:
    """The settings of each placement of a comparison, in order."""
    each = [SimpleNamespace(**vars(settings)) for _ in towers.PLACEMENTS]
    for one, name in zip(each, towers.PLACEMENTS):
        one.placement = name
        if one.output_dir:
            one.output_dir = str(place(one.output_dir) / name)
    return each


def start(
    settings: SimpleNamespace, devices: Sequence[str]
) -> training_run.TrainingRun:
    """Starts the `TrainingRun` of a placement, on the first of `devices`."""
    if settings.placement == "data_parallel":
        devices = devices[: settings.num_replicas]
        strategy = training_run.make_strategy(
            settings, devices=devices, num_replicas=None, virtual_devices=None
        )
        return training_run.TrainingRun(settings, strategy, devices)
    devices = devices[: 1 if settings.placement == "single" else 2]
    strategy = tf.distribute.get_strategy()  # TensorFlow's default: none.
    return training_run.TrainingRun(settings, strategy, devices, num_replicas=1)


def seconds_per_epoch(history: Sequence[Mapping[str, Any]]) -> float:
    """Mean seconds per epoch; of several epochs, the first is left out."""
    seconds = [record["seconds"] for record in history]
    return statistics.mean(seconds[1:] or seconds)


def profile(
    settings: SimpleNamespace, model: keras.Model, training: tf.data.Dataset
) -> Profile | None:
    """Profiles `settings.profile_steps` further steps; `None` for 0."""
    steps = settings.profile_steps
    if not steps:
        return None

    def train(steps: int) -> None:
        model.fit(training, steps_per_epoch=steps, shuffle=False, verbose=0)

    # A resumed run that was complete has traced nothing yet.
    train(steps=2)
    folder = settings.profile_dir and pathlib.Path(
        settings.profile_dir, settings.placement
    )
    measured = placement.measure_copies(lambda: train(steps), folder)
    return Profile(steps, measured)


def print_operations(row: Row) -> None:
    """Prints the longest operations of a placement, copies among them."""
    if row.profile is None:
        return
    measured, steps = row.profile.measured, row.profile.steps
    table = reports.table(
        f"{row.placement}: {steps} profiled steps",
        "operation",
        right=("share of time", "time (ms)", "calls"),
    )
    chosen = measured.operations[:_MOST_OPERATIONS]
    if measured.copies not in chosen:
        chosen.append(measured.copies)
    for operation in chosen:
        table.add_row(
            Text(operation.name),
            f"{operation.share:.2%}",
            f"{operation.seconds * 1e3:.2f}",
            f"{operation.calls:,}",
        )
    reports.console().print(table)


def print_table(rows: Sequence[Row]) -> None:
    """Prints the comparison: time, error and copies of each placement."""
    columns = "devices,s per epoch,train MSE,held-out MSE,copies per step"
    right = [*columns.split(","), "share in copies"]
    table = reports.table("placements", "placement", right=right)
    for row in rows:
        copies = share = "not profiled"
        if row.profile is not None:
            measured = row.profile.measured.copies
            copies = f"{measured.calls / row.profile.steps:.1f}"
            share = f"{measured.share:.2%}"
        table.add_row(
            row.placement,
            ", ".join(row.result.devices),
            f"{row.seconds_per_epoch:.3f}",
            f"{row.result.loss:.5f}",
            f"{row.result.figures['mse']:.5f}",
            copies,
            share,
        )
    reports.console().print(table)
    if not all("GPU" in name for row in rows for name in row.result.devices):
        run_report.print_line(_CPU_NOTE)
