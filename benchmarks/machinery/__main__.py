"""The command: costs of starting, watching and ending jobs of several sizes.

    python -m benchmarks.machinery --workers=2,16,64,256

The library's launchers start real processes, which run the rendezvous, watch
one another, lose a worker, are restarted and end. They import no TensorFlow and
train nothing, so the costs of TensorFlow's server and collectives are not
included. With `--machines=4` the workers are divided among four launchers, on
loopback addresses of this machine (Linux).
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import app, flags

from benchmarks.machinery import table
from kerasmgpu.job import ports

_WORKERS = flags.DEFINE_list(
    "workers", ["2", "16", "64", "256"], "Numbers of workers, a job for each."
)
_MACHINES = flags.DEFINE_integer(
    "machines", 1, "Launchers to divide the workers over.", lower_bound=1
)
_QUIET_SECONDS = flags.DEFINE_float(
    "quiet_seconds", 12.0, "Time between a job's start and the loss."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "File to append the figures to, a line of JSON per job."
)


def run_job(num_workers, machines, quiet_seconds, folder):
    """Runs one job; returns its figures, see `table.figures`."""
    machines = min(machines, num_workers)
    per_machine = [num_workers // machines] * machines
    per_machine[0] += num_workers % machines
    hosts = ",".join(f"127.0.0.{i + 1}:{n}" for i, n in enumerate(per_machine))
    port = str(ports.free(1)[0])
    began = time.monotonic()
    launchers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.machinery.launcher"]
            + [str(folder), str(quiet_seconds), str(rank), hosts, port],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(machines)
    ]
    outputs = [launcher.communicate()[0] for launcher in launchers]
    for launcher, output in zip(launchers, outputs):
        if launcher.returncode != 0:
            raise RuntimeError(output.decode(errors="replace")[-3000:])
    return table.figures(folder, num_workers, began, time.monotonic())


def main(argv):
    """Runs a job of each size, and prints the table."""
    jobs = []
    for count in map(int, _WORKERS.value):
        with tempfile.TemporaryDirectory(prefix="machinery-") as name:
            folder = pathlib.Path(name)
            jobs.append(
                run_job(count, _MACHINES.value, _QUIET_SECONDS.value, folder)
            )
        if _OUTPUT.value:
            with open(_OUTPUT.value, "a", encoding="utf-8") as file:
                file.write(json.dumps(jobs[-1]) + "\n")
    print(table.markdown(jobs))


if __name__ == "__main__":
    app.run(main)
