"""Measures a recipe's speed-up and efficiency at several replica counts.

    python -m kerasmgpu scaling_report autoencoder --replica_counts=1,2,4 \
        --output_dir=scaling -- --epochs=20 --global_batch_size=1000

runs `python -m kerasmgpu.recipes.autoencoder` once per number of replicas,
each in a separate process, with the flags after `--`. Failed runs are reported
with their reason; the others are still compared. `--output_dir` contains

    report.json            all values of the table, and the flags
    report.png             speed-up and the ideal (needs matplotlib)
    replicas-N/            the recipe's files, with its `result.json`
    replicas-N.log         its output

Speed-up is the ratio of examples per second (of the median epoch; tracing,
compilation and validation left out) to those of the smallest number of replicas
that ran, so it is correct whether runs have the same number of epochs or of
steps. It is not the ratio of the times, which are sums over all epochs,
including slow ones. Efficiency is speed-up divided by the ratio of the replica
counts.

A recipe here is any module, in `kerasmgpu.recipes` or by its dotted name, that
takes the flags `--num_replicas`, `--virtual_devices` and `--output_dir` and
writes to the latter a `result.json`, an object with at least

    devices                          list of the names of the devices
    global_batch_size                rows of a step
    learning_rate                    as scaled for the replicas
    seconds                          training time
    loss                             final loss
    examples_per_second              over all replicas
    examples_per_second_per_replica  the same, divided by the replicas

deepconn runs with `--placement=data_parallel`.

TensorFlow is not imported here, so that only the runs use the devices.
"""

import functools
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import kerasmgpu
from kerasmgpu import replica_arithmetic
from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import (
    child_processes,
    command_line,
    flag_parsing,
    plots,
    reports,
    scaling_tables,
    search_path,
)
from kerasmgpu.errors import InputError, checked_counts, checked_number

RESULT_KEYS = (
    "devices",
    "global_batch_size",
    "learning_rate",
    "seconds",
    "loss",
    "examples_per_second",
    "examples_per_second_per_replica",
)

_OURS = ("num_replicas", "virtual_devices", "output_dir")
_RECIPES = "kerasmgpu.recipes"
_NEEDED = {f"{_RECIPES}.deepconn": {"placement": "data_parallel"}}
"""Maps a recipe to flags without which it does not train on N replicas."""


def run(
    recipe: str,
    replica_counts: Sequence[int] = (1, 2, 4),
    output_dir: str | os.PathLike[str] = "scaling_report",
    virtual_devices: bool = False,
    recipe_flags: Sequence[str] = (),
) -> dict[str, Any]:
    """Runs a recipe once per number of replicas, and reports.

    Args:
        recipe: String, a module of `kerasmgpu.recipes` such as
            `"autoencoder"`, or the dotted name of any other module.
        replica_counts: Sequence of integers of at least 1, numbers of replicas
            to run the recipe on, in any order.
        output_dir: String or path-like, folder for the report and the runs; new
            or empty.
        virtual_devices: Boolean, whether to use logical CPU devices even if
            there are GPUs. Without GPUs they are always used. Defaults to
            `False`.
        recipe_flags: Sequence of strings, flags of the recipe.

    Returns:
        Dictionary, as written to `report.json`.

    Raises:
        InputError: If an argument is invalid.
    """
    module = _module(recipe)
    counts = checked_counts(replica_counts)
    recipe_flags = _checked_flags(module, recipe_flags)
    _check_with_parser(module, recipe_flags)
    folder = reports.empty_folder(output_dir)
    plots.tell_if_missing()
    on_cpu = virtual_devices or not child_processes.visible_gpus()
    runs = []
    for count in counts:
        arguments = [f"--num_replicas={count}"]
        if on_cpu:
            arguments.append(f"--virtual_devices={count}")
        replicas = "1 replica" if count == 1 else f"{count} replicas"
        print(f"── {recipe} on {replicas}", flush=True)
        runs.append(
            _run_once(module, count, folder, [*arguments, *recipe_flags])
        )
    _compare(runs)
    report = {
        "recipe": recipe,
        "recipe_flags": recipe_flags,
        "on_logical_cpu_devices": on_cpu,
        "runs": runs,
    }
    text = json.dumps(report, indent=2) + "\n"
    write_text(folder / "report.json", text)
    scaling_tables.print_tables(report)
    scaling_tables.draw(report, folder / "report.png")
    return report


def _run_once(
    module: str, count: int, folder: pathlib.Path, arguments: list[str]
) -> dict[str, Any]:
    """Runs the recipe in a process; returns its entry of the report."""
    output_dir = folder / f"replicas-{count}"
    log = folder / f"replicas-{count}.log"
    command = [sys.executable, "-m", module, *arguments]
    status, lines = child_processes.run_logged(
        [*command, f"--output_dir={output_dir}"], log
    )
    entry = {"replicas": count, "log": str(log)}
    if status != 0:
        reason = child_processes.failure_reason(status, lines)
        return {**entry, "failed": reason}
    try:
        result = json.loads((output_dir / "result.json").read_text("utf-8"))
        return {**entry, "result": _checked_result(result)}
    except (OSError, TypeError, ValueError) as error:
        return {**entry, "failed": f"no usable result.json: {error}"}


def _checked_result(result: Any) -> dict[str, Any]:
    if not isinstance(result, dict):
        raise InputError("not a JSON object")
    missing = [key for key in RESULT_KEYS if key not in result]
    if missing:
        raise InputError(f"missing: {', '.join(missing)}")
    for key in ("seconds", *RESULT_KEYS[-2:]):
        checked_number(result[key], key)
    # A NaN loss is a result too: training diverged.
    return {**result, "loss": float(result["loss"])}


def _compare(runs: list[dict[str, Any]]) -> None:
    """Adds speed-up and efficiency to the entries of successful runs."""
    good = [run for run in runs if "result" in run]
    for run in good:
        ratio = replica_arithmetic.speed_up(
            run["result"]["examples_per_second"],
            good[0]["result"]["examples_per_second"],
        )
        run["speed_up"] = ratio
        run["efficiency"] = replica_arithmetic.efficiency(
            ratio, run["replicas"], reference_replicas=good[0]["replicas"]
        )


def _module(recipe: str) -> str:
    """Returns the name of a recipe's module; raises if there is none."""
    name = recipe if "." in recipe else f"{_RECIPES}.{recipe}"
    try:
        found = search_path.find(name)
    except ModuleNotFoundError:
        found = None  # The package of a dotted name is missing.
    room, _, last = name.rpartition(".")
    if found and (room != _RECIPES or last in _recipes()):
        return name
    raise InputError(
        f"unknown recipe {recipe!r}; expected one of: {', '.join(_recipes())} "
        "(or the dotted name of a module with the same flags)"
    )


def _recipes() -> list[str]:
    """Returns the names of the recipes: folders with presets."""
    folder = pathlib.Path(kerasmgpu.__file__).parent / "recipes"
    return sorted(path.parent.name for path in folder.glob("*/presets"))


def _checked_flags(module: str, recipe_flags: Sequence[str]) -> list[str]:
    """Returns the flags of every run, including those the recipe needs."""
    needed = _NEEDED.get(module, {})
    for flag in recipe_flags:
        if _name(flag) in _OURS:
            raise InputError(
                f"{flag} is set by the report itself for each run; pass the "
                "report's own flag, before --"
            )
    for name, value in needed.items():
        given = _value(name, recipe_flags)
        if given not in (None, value):
            raise InputError(
                f"the report needs --{name}={value}. Received: "
                f"--{name}={given}; leave it out"
            )
    # Last, so that no flag file overrides them; a flag is given once otherwise.
    has_files = any(_name(flag) == "flagfile" for flag in recipe_flags)
    added = [
        f"--{name}={value}"
        for name, value in needed.items()
        if has_files or _value(name, recipe_flags) is None
    ]
    return [*recipe_flags, *added]


def _check_with_parser(module: str, recipe_flags: Sequence[str]) -> None:
    """Lets a kerasmgpu recipe parse its flags, before any run starts.

    The flags of other modules are not checked.

    Raises:
        InputError: If the recipe refuses them.
    """
    if not module.startswith(f"{_RECIPES}."):
        return
    # abseil's flag: the recipe ends after parsing its flags.
    arguments = ["-m", module, "--only_check_args", *recipe_flags]
    try:
        child_processes.output_of_python(arguments)
    except InputError as error:
        raise InputError(f"{module.rpartition('.')[2]}: {error}") from None


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0]


def _value(name: str, recipe_flags: Sequence[str]) -> str | None:
    """Returns the value of `--name=value` or `--name value`, or `None`."""
    for flag, following in zip(recipe_flags, [*recipe_flags[1:], ""]):
        if flag.startswith("-") and _name(flag) == name:
            return flag.partition("=")[2] if "=" in flag else following
    return None


define_flags = functools.partial(flag_parsing.define_arguments, run)


def main(argv: list[str]) -> None:
    """Runs the recipe named in `argv` once per number of replicas."""
    if len(argv) < 2:
        raise InputError(
            "give the name of a recipe first: " + ", ".join(_recipes())
        )
    settings = flag_parsing.arguments(run)
    report = run(argv[1], **settings, recipe_flags=argv[2:])
    if any("failed" in entry for entry in report["runs"]):
        sys.exit(1)


if __name__ == "__main__":
    command_line.start(main, define_flags, ends_children=True)
