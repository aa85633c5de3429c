"""Meets the workers of its job; writes their addresses to the folder given.

python started_program.py FOLDER JOB [pause before the meeting, in seconds]
"""

import os
import pathlib
import sys
import time

from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster, introduction, rendezvous

folder, job, *pause = sys.argv[1:]
if len(pause) == 2:  # As `mp.spawn` does: variables that /proc doesn't show.
    os.environ.update(RANK=pause[1])
time.sleep(float(pause[0]) if pause else 0.0)
worker = cluster.from_environment()
seconds = float(os.environ.get("SECONDS_TO_MEET", "20"))
try:
    worker = introduction.introduce(worker, seconds, "")
    rendezvous.meet(worker, seconds)
except InputError as error:
    sys.exit(f"error: {error}")
path = pathlib.Path(folder, f"{job}-{worker.index}-{os.getpid()}")
path.write_text(" ".join(worker.addresses))
# Worker 0 trains: it has its port for that time.
time.sleep(float(os.environ.get("SECONDS_OF_TRAINING", "1")))
