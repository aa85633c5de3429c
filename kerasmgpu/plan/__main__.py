"""Predicts speed-up and efficiency on more GPUs, and the bottleneck.

    python -m kerasmgpu.plan --step_seconds=0.3 --batch_size_per_replica=64 \
        --parameters=25.6e6 --link=nvlink3 --link_between=100gbit

The step of one replica comes from flags, as above, or from a measurement:
`--from=benchmark.json` (the repository's `benchmarks/`), `--from=throughput.jsonl`
(ThroughputLogger, on one replica), `--module=my_module:build` (runs it). Other
flags override measured values.

`--batch_size_per_replica` asks for weak scaling (every replica has that many
rows), `--global_batch_size` for strong scaling (all share them).
`--published` compares predictions with published measurements.
"""

import dataclasses
from typing import Any

from absl import flags

from kerasmgpu.commands import flag_parsing, plots, reports
from kerasmgpu.commands.command_line import say_loading, start
from kerasmgpu.errors import (
    InputError,
    checked_counts,
    checked_integer,
    checked_number,
)
from kerasmgpu.hardware import device_memory
from kerasmgpu.plan import (
    own_links,
    published,
    scaling_prediction,
    sources,
    tables,
)
from kerasmgpu.plan.link_rates import LINKS, link
from kerasmgpu.plan.mesh_time import predict_mesh
from kerasmgpu.plan.step_time import ALGORITHMS, Machines, Step

_STEP_FLAGS = {
    "fixed_seconds": "fixed_seconds",
    "host_seconds": "host_seconds",
    "host_seconds_per_replica": "host_seconds_per_replica",
    "input_examples_per_second": "input_rows_per_second",
    "bytes": "reduced_bytes",
    "overlap": "overlap",
}
"""Maps a flag to the attribute of `Step` that it sets."""

_LINK = "pcie4"
"""The link inside a machine, unless one is named."""

_NOT_FOR_MESHES = {
    "batch_size_per_replica": "give --global_batch_size",
    "bytes": "the step's are counted",
    "parameters": "the step's are counted",
    "device_memory": "call kerasmgpu memory --device_memory",
}
"""Maps a flag to what to do without it."""


def _step(values: flags.FlagValues) -> sources.Measured:
    """Returns the step that the flags describe, as `Measured`."""
    given = {
        attribute: values[flag].value
        for flag, attribute in _STEP_FLAGS.items()
        if values[flag].value is not None
    }
    if values.parameters is not None:
        if values["bytes"].value is not None:
            raise InputError("Give either --parameters or --bytes, not both")
        parameters = checked_number(values.parameters, "parameters")
        given["reduced_bytes"] = sources.BYTES_PER_PARAMETER * parameters
    if values.batch_size_per_replica and values.global_batch_size:
        raise InputError(
            "Give either --batch_size_per_replica (weak scaling) or "
            "--global_batch_size (strong scaling), not both"
        )
    chosen = [values["from"].value, values.step_seconds]
    if values.device_memory is None or chosen == [None, None]:
        chosen.append(values.module)
    if sum(value is not None for value in chosen) != 1:
        raise InputError(
            "give the step of one replica in one way: --step_seconds, --from "
            "or --module. --module beside another one is for --device_memory"
        )
    batch = values.batch_size_per_replica or values.global_batch_size
    if values.step_seconds is not None:
        if batch is None or "reduced_bytes" not in given:
            raise InputError(
                "--step_seconds needs --parameters or --bytes, and the batch: "
                "--batch_size_per_replica or --global_batch_size"
            )
        seconds = checked_number(values.step_seconds, "step_seconds")
        return sources.Measured(Step(batch, seconds, **given))
    if values["from"].value is None:
        say_loading(f"measuring {values.module} on one replica")
        counts = checked_counts(
            flag_parsing.counts_of_flag(values.replica_counts)
        )
        measured = sources.from_module(
            values.module, values.steps, devices=max(counts)
        )
    else:
        measured = sources.from_file(
            values["from"].value, values.workload, values.contender
        )
    step = dataclasses.replace(measured.step, **given)
    if "reduced_bytes" not in given and not step.reduced_bytes:
        raise InputError(
            "the size of the gradients is not in "
            f"{values['from'].value or values.module}; give --parameters or "
            "--bytes"
        )
    step = sources.with_rows(step, batch or step.rows)
    return dataclasses.replace(measured, step=step)


def _predict_mesh(
    values: flags.FlagValues,
    measured: sources.Measured,
    machines: Machines,
) -> dict[str, Any]:
    """Predicts the step of a program that sets a `keras.distribution`."""
    for flag, instead in _NOT_FOR_MESHES.items():
        if values[flag].value is not None:
            raise InputError(
                f"--{flag} is not for a program that sets a keras.distribution. "
                f"Received: --{flag}={values[flag].value}; {instead}"
            )
    counts = checked_counts(flag_parsing.counts_of_flag(values.replica_counts))
    devices = max(counts)
    axes, share = sources.on_mesh(
        values.module,
        measured.step.rows,
        devices,
        machines.replicas_per_machine,
    )
    return scaling_prediction.plan_mesh(
        measured.step, predict_mesh(measured.step, machines, axes, share)
    )


def _machines(values: flags.FlagValues) -> Machines:
    per_machine = checked_integer(
        values.replicas_per_machine, "replicas_per_machine", minimum=1
    )
    between = link(
        values.link_between, values.latency_between_seconds, "link_between"
    )
    inside = link(values.link, values.latency_seconds)
    return Machines(per_machine, inside, between, values.all_reduce)


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""

    def number(name: str, help_text: str, default: float | None = None) -> None:
        flags.DEFINE_float(name, default, help_text, flag_values=flag_values)

    def integer(name: str, help_text: str, default: int | None = None) -> None:
        flags.DEFINE_integer(
            name, default, help_text, lower_bound=1, flag_values=flag_values
        )

    def text(name: str, help_text: str, default: str | None = None) -> None:
        flags.DEFINE_string(name, default, help_text, flag_values=flag_values)

    number(
        "step_seconds",
        "Seconds of one replica's step, without waiting for input.",
    )
    text("from", "File with the step: benchmark.json, or of ThroughputLogger.")
    text(
        "module",
        "MODULE:FUNCTION or FILE.py:FUNCTION to run and measure; with "
        "--device_memory, and the step from elsewhere, only to trace.",
    )
    text(
        "device_memory",
        "Memory of a device, as 24GiB or A100-40GB: says which numbers of "
        "replicas fit, and with which setting.",
    )
    text("workload", "Workload of the benchmark.json to take.")
    text(
        "contender",
        "Contender of the benchmark.json to take.",
        flag_parsing.defaults(sources.from_file)["contender"],
    )
    integer(
        "steps",
        "Steps to measure with --module.",
        flag_parsing.defaults(sources.from_module)["steps"],
    )
    integer("batch_size_per_replica", "Rows of each replica (weak scaling).")
    integer("global_batch_size", "Rows of all replicas (strong scaling).")
    number("parameters", "Trainable parameters, all-reduced as float32.")
    number("bytes", "Bytes to all-reduce, instead of --parameters.")
    number("fixed_seconds", "Seconds of a step that don't depend on its rows.")
    number("host_seconds", "Host time of a step with one replica, in seconds.")
    number(
        "host_seconds_per_replica",
        "Host time that each further replica of a machine adds. Default: the same.",
    )
    number("input_examples_per_second", "Rate of one machine's input.")
    number("overlap", "Share of the backward pass that hides the all-reduce.")
    names = f"{', '.join(LINKS)}, or GB/s."
    text("link", f"Between the replicas of a machine: {names}", _LINK)
    text("link_between", f"Between machines: {names}", "25gbit")
    number("latency_seconds", "Latency inside a machine. Default: the link's.")
    number(
        "latency_between_seconds",
        "Latency between machines. Default: the link's.",
    )
    integer("replicas_per_machine", "GPUs of a machine.", 8)
    flags.DEFINE_enum(
        "all_reduce",
        ALGORITHMS[0],
        ALGORITHMS,
        "Hierarchical: a ring in each machine and one between them; ring: one "
        "through all replicas.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "replica_counts",
        [str(count) for count in scaling_prediction.REPLICA_COUNTS],
        "Numbers of replicas.",
        flag_values=flag_values,
    )
    number(
        "worth",
        "Least speed-up of a further replica that counts as help.",
        flag_parsing.defaults(scaling_prediction.plan)["worth"],
    )
    text("output_dir", "Folder for plan.json and plan.png. Default: none.")
    flags.DEFINE_boolean(
        "published",
        False,
        "Show the predictions for published measurements instead.",
        flag_values=flag_values,
    )


def main(argv: list[str]) -> None:
    """Predicts for the settings in the flags, and prints the table."""
    flag_parsing.require_flags_only(argv)
    values = flags.FLAGS
    if values.published:
        tables.print_published(published.compare())
        return
    if values.output_dir is not None:
        reports.require_folder(values.output_dir)
        plots.tell_if_missing()
    machines = _machines(values)
    if values.device_memory is not None:
        device_memory.parse(values.device_memory)  # Raises before it measures.
        if values.module is None:
            raise InputError(
                "--device_memory needs the model: give --module, which may "
                "accompany --step_seconds or --from then"
            )
    measured = _step(values)
    title = (
        f"{values.replicas_per_machine} replicas per machine, "
        f"{values.link} inside, {values.link_between} between"
    )
    notes = list(measured.notes)
    if values["link"].using_default_value and (text := own_links.note(_LINK)):
        notes.append(text)
    if measured.sets_distribution:
        report = _predict_mesh(values, measured, machines)
        notes.append(
            "the program sets a keras.distribution: of --replica_counts only the "
            "largest is used, for the devices that it finds"
        )
    else:
        report = scaling_prediction.plan(
            measured.step,
            machines,
            flag_parsing.counts_of_flag(values.replica_counts),
            values.global_batch_size,
            values.worth,
        )
    scaling_prediction.run(
        report,
        title,
        notes,
        values.output_dir,
        values.device_memory and values.module,
        values.device_memory,
        machines.replicas_per_machine,
    )


if __name__ == "__main__":
    start(main, define_flags, ends_children=True)
