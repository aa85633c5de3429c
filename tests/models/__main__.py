"""Trains the table of models on one device and on replicas, and prints it.

    python -m tests.models
    python -m tests.models --select=generative,gpt --replicas=2

The table goes to the output in Markdown, a line when a model was measured, and
progress to the errors. The status is 1 if a model differs by more than its
tolerance, if replicas' copies differ, or if anything is raised. Every group of
models runs in processes of its own, which end before memory grows.
"""

import json
import os
import subprocess
import sys

from absl import app, flags

from tests.models import table

FLAGS = flags.FLAGS
flags.DEFINE_list("select", [], "Parts of names or groups of models; or all.")
flags.DEFINE_list("replicas", ["2", "3"], "Numbers of replicas.")

_MOST_IN_A_PROCESS = 8


def main(argv):
    del argv
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Not in this process: what it imports stays.
    chosen = json.loads(_output("chosen", FLAGS.select).splitlines()[-1])
    records = {}
    print(table.head(FLAGS.replicas), flush=True)
    for names in chosen.values():
        while names:
            now, names = names[:_MOST_IN_A_PROCESS], names[_MOST_IN_A_PROCESS:]
            names = _measure(now, records) + names
    failed = [name for name, r in records.items() if table.complaints(r)]
    for name in failed:
        print(f"{name}: {'; '.join(table.complaints(records[name]))}")
    return 1 if failed else 0


def _measure(names, records):
    """Measures models; returns those that a process that ended left over."""
    child = subprocess.Popen(
        _command("measure", [",".join(FLAGS.replicas), *names]),
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in child.stdout:
        if not line.startswith("{"):
            continue
        record = json.loads(line)
        records[record["name"]] = record
        if "begins" not in record:
            _tell(record)
    child.wait()
    done = [name for name in names if name in records]
    if done and "begins" in records[done[-1]]:
        records[done[-1]] = {
            **records[done[-1]],
            "error": f"the process ended with status {child.returncode}",
        }
        _tell(records[done[-1]])
    if not done:
        raise RuntimeError(
            f"The process for {names} ended with {child.returncode}."
        )
    return [name for name in names if name not in records]


def _tell(record):
    print(table.row(record, FLAGS.replicas), flush=True)
    print(table.progress(record), file=sys.stderr, flush=True)


def _output(*arguments):
    return subprocess.run(
        _command(*arguments), stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def _command(function, arguments):
    return [
        sys.executable,
        "-c",
        "import sys; from tests.models import child;"
        "getattr(child, sys.argv[1])(sys.argv[2:])",
        function,
        *arguments,
    ]


if __name__ == "__main__":
    app.run(main)
