"""The command: runs a program in several workers, on one or more machines.

    kerasmgpu launch train.py --epochs=5                     # one per GPU
    kerasmgpu launch --num_workers=4 -m my_package.train

The launcher's own flags come first; from the program on, arguments are the
program's. Put -- before the program if one of them is a flag of the launcher,
too. On several machines, start the same command on each, with its rank:

    kerasmgpu launch --hosts=a:4,b:4 --rank=0 train.py

The program is the same as for one worker: `kerasmgpu.strategy()` detects the
job. Output lines of workers are prefixed with the worker's index.
Exit status: 0 if every worker ends with 0; else that of the worker that
failed first, 128 + the signal if one killed it; 75 if the workers saved and
should be started again; 1 if a machine is lost. Ctrl-C and SIGTERM are
forwarded as SIGTERM, so that workers save; a second Ctrl-C kills them.
`docs/clusters.md` covers Slurm, Kubernetes and other clusters.
"""

import inspect
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from kerasmgpu.commands import flag_parsing
from kerasmgpu.commands.command_line import start
from kerasmgpu.commands.endings import EXIT_READER_GONE
from kerasmgpu.errors import InputError
from kerasmgpu.launch import dry_run as dry_runs
from kerasmgpu.launch import isolation, settings
from kerasmgpu.launch.launcher import launch
from kerasmgpu.launch.output import Terminal


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines the flags; each is a keyword of `run`."""
    flag_parsing.define_arguments(settings.check, flag_values)
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "Prints the workers, their machines and devices; starts nothing.",
        flag_values=flag_values,
    )


def run(
    command: Sequence[str],
    dry_run: bool = False,
    environ: Mapping[str, str] = os.environ,
    **keywords: Any,
) -> int:
    """Runs a command in every worker; every flag is a keyword.

    Args:
        command: Sequence of strings, the command of each worker.
        dry_run: Boolean, only print the plan: workers, machines and devices.
        environ: Mapping, the environment that workers inherit. Defaults to
            `os.environ`.
        **keywords: The flags, see `--help`; same defaults. `isolate=True`
            moves the calling process into the namespace.

    Returns:
        Integer, the exit status of the job.

    Raises:
        InputError: If a setting is invalid or not possible on this machine.

    Example:

    ```python
    status = run(["python", "train.py"], num_workers=2, max_restarts=3)
    ```
    """
    checked = settings.check(command, environ=environ, **keywords)
    if dry_run:
        dry_runs.print_plan(checked)
        return 0
    if checked.isolate:
        isolation.enter()
    terminal = Terminal(environ=environ)
    if checked.note:
        terminal.say(checked.note)
    terminal.say(f"starting {_workers(checked)}")
    try:
        ending = launch(checked, terminal, environ)
        terminal.say(ending.message)
    finally:
        terminal.close()
    return EXIT_READER_GONE if terminal.reader_is_gone else ending.status


def _workers(checked: settings.Settings) -> str:
    """Describes this machine's workers."""
    count = checked.num_workers
    workers = "1 worker" if count == 1 else f"{count} workers"
    if len(checked.hosts) == 1:
        return workers
    return f"{workers} on machine {checked.rank} of {len(checked.hosts)}"


def parse(argv: list[str]) -> list[str]:
    """Parses the launcher's flags, which end where the command begins.

    Args:
        argv: List of strings, the launcher and its arguments.

    Returns:
        List of strings, the launcher and the command of the workers.

    Raises:
        InputError: If a flag is invalid or ambiguous, see `split`.
    """
    own, command = split(argv[1:], flags.FLAGS)
    return [*flag_parsing.parse([argv[0], *own]), *command]


def split(
    arguments: list[str], flag_values: flags.FlagValues
) -> tuple[list[str], list[str]]:
    """Splits arguments into the launcher's flags and the workers' command.

    The command begins behind `--`, or with the first argument that is no flag.

    Args:
        flag_values: `absl.flags.FlagValues` of the launcher.

    Raises:
        InputError: If an argument of the command is a flag of the launcher,
            too, and no `--` says whose it is.
    """
    place = 0
    while place < len(arguments):
        word = arguments[place]
        if word == "--":
            return arguments[:place], arguments[place + 1 :]
        if word == "-m" or not word.startswith("-"):
            break
        name, has_value, _ = word.lstrip("-").partition("=")
        flag = flag_values[name] if name in flag_values else None
        takes_next = flag is not None and not flag.boolean and not has_value
        place += 2 if takes_next else 1
    command = arguments[place:]
    _require_no_flags(command)
    return arguments[:place], command


def _require_no_flags(command: list[str]) -> None:
    names = inspect.signature(settings.check).parameters.keys() | {"dry_run"}
    for word in itertools.takewhile(lambda word: word != "--", command):
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and {name, name.removeprefix("no")} & names:
            raise InputError(
                f"{word} after {command[0]} may be for the launcher or for the "
                f"program. Write it before {command[0]} if it is the "
                f"launcher's, or put -- before {command[0]} if it is the "
                "program's"
            )


def main(argv: list[str], environ: Mapping[str, str]) -> None:
    """Runs the command with the flags as keywords; exits the process."""
    keywords = flag_parsing.arguments(settings.check)
    keywords["dry_run"] = flags.FLAGS.dry_run
    sys.exit(run(argv[1:], environ=environ, **keywords))


if __name__ == "__main__":
    # Workers inherit the user's environment, without the variables that `start`
    # sets for TensorFlow in this process.
    inherited = dict(os.environ)
    start(lambda argv: main(argv, inherited), define_flags, parse=parse)
