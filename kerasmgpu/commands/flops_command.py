"""Counts the floating-point operations of a training step, by layer.

    python -m kerasmgpu.commands.flops_command my_module:build \
        --global_batch_size=256 --device=H100-SXM

`build` is a function that returns a compiled Keras model; its data are given as
for `kerasmgpu memory`. The step is traced, gradients included, and nothing runs.
With `--device` it says how long a step takes at least.
"""

import json
from collections.abc import Callable
from typing import Any

from absl import flags

from kerasmgpu.commands import flag_parsing, reports, tracing_process
from kerasmgpu.commands.command_line import start
from kerasmgpu.errors import checked_integer
from kerasmgpu.hardware import data_sheets

_UNITS = ("", "k", "M", "G", "T", "P")


def count_flops(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    *,
    global_batch_size: int | None = None,
    replicas: int = 8,
    device: str | None = None,
    timeout_seconds: float = 600,
    show: bool = True,
) -> dict[str, Any]:
    """Counts the floating-point operations of a model's training step.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or its name; see `kerasmgpu.memory.memory`.
        data: Function that returns the data, its name, or `None`.
        global_batch_size: Integer, rows of a global batch. Default: those of
            the first batch, or 32 for arrays.
        replicas: Integer, devices that a program with `keras.distribution`
            finds: those that its mesh needs. FLOPs are those of one device's
            step, whatever the mesh. Defaults to 8.
        device: String, GPU at whose peak a step is timed, a key of
            `hardware.data_sheets.DEVICES` such as `"H100-SXM"`. Default: none.
        timeout_seconds: Number, how long building and tracing may take.
        show: Boolean, whether to print the table.

    Returns:
        Dictionary: `"flops_per_step"`, model FLOPs or `None`;
        `"hardware_flops_per_step"`, with what is computed again;
        `"flops_per_example"`, `"formula"` by rows, `"by_dtype"`, `"layers"`
        (a dictionary each), `"uncounted"` and `"elementwise"` (numbers of
        operations by type), `"unknown"` (names of sizes), and with a device
        `"seconds_at_peak"`.

    Raises:
        InputError: If the model can't be traced, or an argument is invalid.
    """
    if device is not None:
        device = data_sheets.required(device).name
    report = tracing_process.run(
        "kerasmgpu.commands.flops_counting",
        "commands.flops_command.count_flops",
        build,
        data,
        global_batch_size=global_batch_size,
        timeout_seconds=timeout_seconds,
        show=show,
        devices=checked_integer(replicas, "replicas", 1),
        device_type="GPU",
        flag="--replicas",
        device=device,
    )
    if show:
        print_flops(report)
    return report


def print_flops(report: dict[str, Any]) -> None:
    """Prints the table, the totals, and what is not counted."""
    console = reports.console()
    rows = report["global_batch_size"]
    columns = ["forward", "backward"]
    if any(layer["recomputed"] for layer in report["layers"]):
        columns.append("recomputed")
    table = reports.table(
        f"{report['model']}, {report['parameters']:,} parameters, global "
        f"batch {rows:,}: FLOPs of a training step",
        "layer",
        right=(*columns, "share"),
    )
    for layer in report["layers"]:
        share = layer["share"]
        table.add_row(
            layer["layer"],
            *(size(layer[name]) for name in columns),
            "" if share is None else f"{share:.1%}",
        )
    console.print(table)
    for line in _lines(report):
        reports.say(console, line)


def _lines(report: dict[str, Any]) -> list[str]:
    """The lines below the table."""
    lines = [f"per step of n rows: {report['formula']}"]
    total, again = report["flops_per_step"], report["hardware_flops_per_step"]
    if total is None:
        names = ", ".join(report["unknown"])
        lines.append(f"known when the step runs only: {names}")
    else:
        rows = report["global_batch_size"]
        lines = [
            f"per step: {size(total)}FLOPs; per example: {size(total / rows)}FLOPs",
            *lines,
        ]
        if again != total:
            lines.append(f"with what is computed again: {size(again)}FLOPs")
    if report["uncounted"]:
        lines.append(f"not counted: {_named(report['uncounted'])}")
    small = report["elementwise"]
    lines.append(
        "not counted, by convention: "
        f"{sum(small.values()):,} elementwise operations and reductions"
    )
    if report["device"] is not None:
        seconds = report["seconds_at_peak"]
        lines.append(
            f"{report['device']}: its peak for {', '.join(report['by_dtype'] or ())} "
            "is not known"
            if seconds is None
            else f"one {report['device']} at its peak ({report['peak_source']}, "
            f"float32 as TensorFloat-32): {duration(seconds)} per step"
        )
    return lines


def _named(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def size(flops: float | str | None) -> str:
    """Returns operations as text with three digits and a unit prefix.

    Example:

    >>> size(12_300_000_000)
    '12.3 G'
    """
    if flops is None or isinstance(flops, str):
        return flops or ""
    for unit in _UNITS[:-1]:
        if flops < 999.5:
            return f"{flops:.3g} {unit}"
        flops /= 1000
    return f"{flops:.4g} {_UNITS[-1]}"


def duration(seconds: float) -> str:
    """Returns a short time as text.

    Example:

    >>> duration(0.0123)
    '12.3 ms'
    """
    for unit in ("s", "ms", "µs"):
        if seconds >= 1:
            return f"{seconds:.3g} {unit}"
        seconds *= 1000
    return f"{seconds:.3g} ns"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    names = ", ".join(data_sheets.DEVICES)
    flag_parsing.define_arguments(
        count_flops,
        flag_values,
        device=f"GPU at whose peak a step is timed: {names}.",
    )
    flag_parsing.define_json(flag_values)


def main(argv: list[str]) -> None:
    """Counts for the model in `argv`, and prints the table."""
    build, as_json = flag_parsing.only_function(argv), flags.FLAGS.json
    settings = flag_parsing.arguments(count_flops)
    report = count_flops(build, **settings, show=not as_json)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
