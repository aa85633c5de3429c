"""A worker without training or TensorFlow.

    python -m benchmarks.machinery.worker FOLDER QUIET_SECONDS

In the first run the last worker kills itself after `QUIET_SECONDS`, and the
others end with an error when they detect it, as after a collective that raises.
In the second run all end normally.
"""

import os
import pathlib
import signal
import sys
import threading
import time

from benchmarks.machinery.record import Record
from kerasmgpu.job import cluster, job_token, rendezvous
from kerasmgpu.job.addresses import split_address
from kerasmgpu.job.watch import TIMEOUT_VARIABLE, FirstWorker, OtherWorker

# As long as the end of a traceback; each launcher sends it to rank 0.
_LAST_WORDS = "\n".join(f"  File, line {n}, in a_function" for n in range(20))
_SECONDS_BEHIND_THE_LOST = 2.0  # As in `membership`.


def main(folder, quiet_seconds):
    """Runs one worker; returns its exit status.

    Args:
        folder: `pathlib.Path` for records, and for messages that a job would
            send through TensorFlow.
        quiet_seconds: Float, seconds between the start and the loss.
    """
    # Ignored: the launcher may send it before the watch has detected the loss.
    signal.signal(signal.SIGTERM, lambda *_: None)
    worker = cluster.from_environment()
    run = os.environ["KERASMGPU_RESTART"]
    record = Record(folder / f"worker-{run}-{worker.index}.jsonl")
    record.note("up")
    token = job_token.read()
    rendezvous.meet(worker, 300.0, token)
    job_token.discard()
    record.note("met")
    noticed = threading.Event()

    def on_lost(*_):
        record.note("noticed")
        noticed.set()

    watch = _watch(worker, folder / f"invitation-{run}", token, on_lost)
    watched = folder / f"watched-{run}"
    if worker.is_first:
        while len(watch._links) < worker.num_workers - 1:
            time.sleep(0.01)
        record.note("watched")
        _write(watched, b"")
    else:
        _wait_for(watched)
    if run != "0":
        record.note("leaves")
        watch.leave()
        record.note("left")
        return 0
    if worker.is_first:
        time.sleep(quiet_seconds)
        record.note("was quiet")
        _write(folder / "quiet", b"")
    if worker.index == worker.num_workers - 1:
        _wait_for(folder / "quiet")
        record.note("dies")
        os.kill(os.getpid(), signal.SIGKILL)
    noticed.wait()
    print(_LAST_WORDS)
    watch.leave("UnavailableError: a worker is gone")
    time.sleep(_SECONDS_BEHIND_THE_LOST)
    record.note("ends")
    return 1


def _watch(worker, invitation, token, on_lost):
    """Starts the watch; a file replaces the broadcast of the invitation."""
    seconds = float(os.environ[TIMEOUT_VARIABLE])
    if worker.is_first:
        watch = FirstWorker(worker.num_workers, seconds, on_lost, 0, token)
        _write(invitation, watch.invitation())
        return watch
    _wait_for(invitation)
    host, _ = split_address(worker.addresses[0])
    return OtherWorker(
        worker.index, host, invitation.read_bytes(), seconds, on_lost, token
    )


def _wait_for(path):
    while not path.exists():
        time.sleep(0.02)


def _write(path, data):
    temporary = path.with_suffix(".part")
    temporary.write_bytes(data)
    temporary.rename(path)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), float(sys.argv[2])))
