"""Examines a machine: what fits together, what works, and how fast.

    kerasmgpu doctor                                # under a minute
    kerasmgpu doctor --train --output=doctor.txt    # before a machine is used

On several machines it runs as a job does:

    python -m kerasmgpu.launch --num_workers=2 -- -m kerasmgpu doctor

Without a GPU it examines logical CPU devices. Each finding says what to do;
`docs/doctor.md` explains them. The exit status is 0 if there is no problem, 1
if there is one, and 2 if a flag is wrong.
"""

import os
import sys

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import flag_parsing, reports
from kerasmgpu.commands.command_line import start
from kerasmgpu.doctor import doctor_report, examination
from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags; most are keywords of `examination.run`."""

    def integer(name: str, most: int, text: str) -> None:
        bounds = {"lower_bound": 1, "upper_bound": most}
        flags.DEFINE_integer(
            name, None, text, flag_values=flag_values, **bounds
        )

    def boolean(name: str, text: str) -> None:
        flags.DEFINE_boolean(name, False, text, flag_values=flag_values)

    def string(name: str, text: str) -> None:
        flags.DEFINE_string(name, None, text, flag_values=flag_values)

    integer(
        "virtual_devices",
        256,
        "Logical CPU devices to examine instead of GPUs. Default without a "
        "GPU: 2.",
    )
    integer(
        "max_megabytes",
        16_384,
        "Largest value of collectives, in MiB. Default: 256 on GPUs, 16 on "
        "CPUs.",
    )
    string("data_dir", "Folder to measure: free space, and speed by a file.")
    boolean("train", "Trains small models on one device and on all.")
    flags.DEFINE_float(
        "timeout_seconds",
        flag_parsing.defaults(examination.run)["timeout_seconds"],
        "How long each child process may take, in seconds.",
        lower_bound=1,
        flag_values=flag_values,
    )
    boolean("json", "Prints the report as JSON instead of tables.")
    string("output", "File for the report, without names of people and hosts.")


def main(argv: list[str]) -> None:
    """Examines, reports, and exits with status 1 if there is a problem."""
    values = flags.FLAGS
    _check(argv, values.data_dir, values.output, values.train)
    report = examination.run(
        virtual_devices=values.virtual_devices,
        data_dir=values.data_dir,
        max_megabytes=values.max_megabytes,
        train=values.train,
        timeout_seconds=values.timeout_seconds,
    )
    if cluster.is_first_worker():
        if values.json:
            print(doctor_report.to_json(report))
        else:
            doctor_report.print_report(report, reports.console())
        if values.output:
            write_text(values.output, doctor_report.to_text(report))
    sys.exit(1 if report["problems"] else 0)


def _check(
    argv: list[str], data_dir: str | None, output: str | None, train: bool
) -> None:
    if len(argv) > 1:
        raise InputError(
            f"doctor takes flags only. Received: {' '.join(argv[1:])}"
        )
    if data_dir is not None and not os.path.isdir(data_dir):
        raise InputError(f"no such folder for --data_dir: {data_dir}")
    if output and not os.path.isdir(os.path.dirname(output) or "."):
        raise InputError(f"no such folder for --output: {output}")
    if train and cluster.from_environment() is not None:
        raise InputError(
            "--train is for one machine, without the launcher: it starts a job "
            "of two workers by itself"
        )


if __name__ == "__main__":
    start(main, define_flags, ends_children=True, wrong_input_status=2)
