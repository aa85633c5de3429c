"""Runs and records the launcher of one machine of the job.

python -m benchmarks.machinery.launcher FOLDER QUIET_SECONDS RANK HOSTS PORT
"""

import pathlib
import sys

from benchmarks.machinery.record import Record
from kerasmgpu.launch.__main__ import run


def main(folder, quiet_seconds, rank, hosts, port):
    """Runs the launcher; returns its exit status.

    Args:
        folder: String, path for records.
        quiet_seconds: String, see `worker.py`.
        rank: String, index of this host.
        hosts: String, value of the launcher's flag `--hosts`.
        port: String, where rank 0 listens.
    """
    record = Record(pathlib.Path(folder, f"launcher-{rank}.jsonl"))
    record.note("up")
    status = run(
        [sys.executable, "-m", "benchmarks.machinery.worker"]
        + [folder, quiet_seconds],
        hosts=hosts,
        rank=int(rank),
        max_restarts=1,
        port=int(port),
    )
    record.note("ends")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
