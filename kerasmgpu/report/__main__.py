"""Writes one HTML page about one or several runs.

    python -m kerasmgpu.report runs/1 runs/2 --output=report.html

A run's folder is that of `kerasmgpu.callbacks.RunRecord`, of a recipe
(`--output_dir`) or of `scaling_report`, or its URL, such as
`s3://bucket/runs/1`. The page needs no network and no other
file: settings, learning curves, speed, where the time goes, what replicas send,
scaling, memory and devices. What no file tells is left out, and said.
"""

import datetime
import pathlib

from absl import flags

from kerasmgpu.atomic_files import write_text
from kerasmgpu.commands import reports
from kerasmgpu.commands.command_line import start
from kerasmgpu.report import page, run_files
from kerasmgpu.stores.places import Place, place


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string(
        "output",
        None,
        "File to write. Default: report.html in the folder of the run, or, of "
        "several runs, in the current folder.",
        flag_values=flag_values,
    )
    # Flags may follow the folders.
    flag_values.set_gnu_getopt(True)


def main(argv: list[str]) -> None:
    """Writes the page about the folders in `argv`, and prints its path."""
    runs = run_files.read(argv[1:])
    folder: Place = runs[0].folder if len(runs) == 1 else pathlib.Path()
    path = place(flags.FLAGS.output or folder / "report.html")
    reports.require_file_in_folder(path)
    write_text(path, page.render(runs, datetime.datetime.now()))
    print(path)


if __name__ == "__main__":
    start(main, define_flags)
