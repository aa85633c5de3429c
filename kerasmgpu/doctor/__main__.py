"""Examines a machine: what fits together, what works, and how fast.

    kerasmgpu doctor                                # under a minute
    kerasmgpu doctor --train --output=doctor.txt    # before a machine is used

On several machines it runs as a job does:

    python -m kerasmgpu.launch --num_workers=2 -m kerasmgpu doctor

Without a GPU it examines logical CPU devices. Each finding says what to do;
`docs/doctor.md` explains them. The exit status is 0 if there is no problem, 1
if there is one, and 2 if a flag is wrong.
"""

import sys

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import flag_parsing, reports
from kerasmgpu.commands.command_line import start
from kerasmgpu.doctor import doctor_report, examination
from kerasmgpu.job import cluster


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flag_parsing.define_arguments(examination.run, flag_values)
    flag_parsing.define_json(flag_values)
    flag_parsing.define_output(
        flag_values, "File for the report, without names of people and hosts."
    )


def main(argv: list[str]) -> None:
    """Examines, reports, and exits with status 1 if there is a problem."""
    flag_parsing.require_flags_only(argv)
    output = flags.FLAGS.output
    reports.require_file_in_folder(output)
    report = examination.run(**flag_parsing.arguments(examination.run))
    if cluster.is_first_worker():
        if flags.FLAGS.json:
            print(doctor_report.to_json(report))
        else:
            doctor_report.print_report(report, reports.console())
        if output:
            write_text(output, doctor_report.to_text(report))
    sys.exit(1 if report["problems"] else 0)


if __name__ == "__main__":
    start(main, define_flags, ends_children=True, wrong_input_status=2)
