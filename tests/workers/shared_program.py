"""One worker of a job that runs the cases of several tests, one by one.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.shared_program FOLDER DEVICES CASE …

`DEVICES` is the number of logical devices of each worker. A case is the name of
a program of this folder, and its argument: `"parity dropout"` calls
`parity_program.run(strategy, "dropout", FOLDER/files/NUMBER)`, where `strategy`
is a function like `kerasmgpu.strategy`. Each worker writes a pair to
`FOLDER/outcomes/NUMBER-WORKER.pickle`: what is returned, and the traceback of a
case that raised, or `None`.
"""

import faulthandler
import functools
import importlib
import os
import pathlib
import pickle
import sys
import time
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import kerasmgpu
from kerasmgpu import cluster
from kerasmgpu.atomic_files import atomic_write

BEGIN = "shared_program: case"
"""Each worker prints this, and the case's number, before the case."""
CASE_SECONDS = 300
"""The longest that a case may take: then its stacks are printed, and it ends."""
WAIT_SECONDS = 30
"""How long a worker whose case raised waits for the others to end it."""


def main(folder, devices, *cases):
    """Runs the cases, and goes on behind one that raises on all workers."""
    folder = pathlib.Path(folder)
    worker = cluster.from_environment()
    strategy = functools.cache(
        functools.partial(kerasmgpu.strategy, virtual_devices=int(devices))
    )
    strategy()
    import keras

    for number, case in enumerate(cases):
        print(f"{BEGIN} {number}", flush=True)
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
        # Layers are numbered as in a process of its own.
        keras.utils.clear_session(free_memory=False)
        files = folder / "files" / str(number)
        files.mkdir(parents=True, exist_ok=True)
        try:
            ended = pickle.dumps((call(case, strategy, files), None))
            has_failed = False
        except Exception:
            ended = pickle.dumps((None, traceback.format_exc()))
            has_failed = True
        path = path_of(folder, number, worker.index)
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(ended)
        if has_failed:
            wait_for_all(folder, number, worker.num_workers)
    faulthandler.cancel_dump_traceback_later()


def call(case, strategy, files):
    """Runs one case; returns its outcome."""
    name, _, argument = case.partition(" ")
    program = importlib.import_module(f"tests.workers.{name}_program")
    return program.run(strategy, argument, files)


def path_of(folder, number, index):
    """The file of what a case ended with on a worker."""
    return folder / "outcomes" / f"{number}-{index}.pickle"


def wait_for_all(folder, number, num_workers):
    """Ends the job unless all workers come to the end of the case.

    One that doesn't waits in a collective, for this worker.
    """
    end = time.monotonic() + WAIT_SECONDS
    paths = [path_of(folder, number, index) for index in range(num_workers)]
    while not all(path.exists() for path in paths):
        if time.monotonic() > end:
            sys.exit(f"case {number} did not end on all workers")
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
