"""Compares predicted with measured memory of a job's workers, as a table.

    python -m tests.memory.jobs
    python -m tests.memory.jobs --num_workers=4 --select=experts,clipped
    python -m tests.memory.jobs --num_workers=4 --meshes

A cell has the predicted MiB of a worker, without the batch, and how far that is
from the outputs of kernels, and from everything, that TensorFlow's CPU allocator
counted on the worker that needed more. It is bold if both are more than 10 % off.
A C compiler is needed.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from absl import app, flags

from kerasmgpu.memory import memory
from tests.memory import allocator, job_models
from tests.memory.measuring_processes import NEAR

SHARDS = ("none", "optimizer", "weights")

_NUM_WORKERS = flags.DEFINE_integer("num_workers", 2, "Workers of a job.")
_MESHES = flags.DEFINE_boolean("meshes", False, "Models of `MESHES` instead.")
_SELECT = flags.DEFINE_list("select", [], "Functions of `job_models`; or all.")


LAYOUT = ("layout",)
"""For models that set a distribution, in place of `SHARDS`."""


def predicted(name, shard=SHARDS, micro_batches=1, num_workers=2):
    """Predicted bytes of a worker by setting, without the batch.

    The job's batch is a constant of its data set, which isn't counted.
    """
    report = memory(
        f"tests.memory.job_models:{name}",
        replicas=num_workers,
        shard=None if shard == LAYOUT else shard,
        micro_batches=micro_batches,
        replicas_per_worker=1,
        device_type="CPU",
        show=False,
    )
    return {
        f"{name},{row['shard']},{row['micro_batches']}": row["total"]
        - row["batch"]
        for row in report["rows"]
    }


def measured(settings, folder, num_workers=2):
    """For each setting, two peaks of the worker that needs more, in bytes."""
    launch = f"kerasmgpu.launch --num_workers={num_workers} --"
    done = subprocess.run(
        [
            *(sys.executable, "-m", *launch.split()),
            *("-m", "tests.memory.job_program", *settings),
        ],
        env={**os.environ, **allocator.environment(folder)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    found = re.findall(r"(\S+) measured (\d+) (\d+)", done.stdout)
    assert len(found) == num_workers * len(settings), done.stderr[-3000:]
    peaks = {setting: (0, 0) for setting in settings}
    for setting, *numbers in found:
        of_worker = map(int, numbers)
        peaks[setting] = tuple(map(max, peaks[setting], of_worker))
    return peaks


def _cell(predicted, peaks):
    errors = [predicted / peak - 1 for peak in peaks]
    text = ", ".join(f"{100 * error:+.0f} %" for error in errors)
    cell = f"{predicted / 2**20:.0f}: {text}".replace("-0 %", "+0 %")
    return cell if min(map(abs, errors)) <= NEAR else f"**{cell}**"


def main(argv):
    del argv
    number, table, shards = _NUM_WORKERS.value, job_models.TABLE, SHARDS
    if _MESHES.value:
        table, shards = job_models.MESHES, LAYOUT
    print(f"| model | {' | '.join(shards)} |\n|---|{'---|' * len(shards)}")
    with tempfile.TemporaryDirectory() as folder:
        for build, text in table.items():
            name = build.__name__
            if _SELECT.value and name not in _SELECT.value:
                continue
            wanted = predicted(name, shards, num_workers=number)
            peaks = measured(list(wanted), pathlib.Path(folder), number)
            cells = [_cell(wanted[one], peaks[one]) for one in wanted]
            print(f"| {text} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    app.run(main)
