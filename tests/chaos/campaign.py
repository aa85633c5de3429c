"""One fault after the other, each to a job of its own."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

from tests.chaos import faults
from tests.chaos.program import EPOCHS, STEPS_PER_EPOCH


@dataclasses.dataclass
class Outcome:
    """What became of one job."""

    fault: str
    step: int
    starts: int
    status: int
    same_weights: bool
    seconds: float

    @property
    def survived(self):
        return self.status == 0 and self.same_weights


class Job:
    """A running job of the campaign's program."""

    def __init__(
        self, output_dir, checkpoint_dir, epochs=EPOCHS, sharded=False
    ):
        self.output_dir = pathlib.Path(output_dir)
        self.checkpoint_dir = pathlib.Path(checkpoint_dir)
        self.num_workers = 2
        self.sharded = sharded
        self.output_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "kerasmgpu.launch"]
        command += [f"--num_workers={self.num_workers}", "--max_restarts=5"]
        command += ["--timeout_seconds=10", "--", "-m", "tests.chaos.program"]
        self._log = (self.output_dir / "log.txt").open("w")
        self.process = subprocess.Popen(
            [
                *command,
                str(self.output_dir),
                str(self.checkpoint_dir),
                str(epochs),
                *(["sharded"] if sharded else []),
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def step(self):
        """Steps that training has made, 0 before it began."""
        try:
            return int((self.output_dir / "steps").read_text() or 0)
        except FileNotFoundError:
            return 0

    def is_saving(self):
        """Whether a checkpoint is half-written at this moment."""
        names = os.listdir(self.checkpoint_dir)
        return any(name.startswith(".tmp-checkpoint") for name in names)

    def kill(self, worker, signal_number):
        """Sends a signal to a worker."""
        pid = int((self.output_dir / f"pid-{worker}").read_text())
        os.kill(pid, signal_number)

    def wait_for_step(self, step, timeout_seconds=120):
        """Waits until training has made a number of steps."""
        deadline = time.monotonic() + timeout_seconds
        while self.step() < step:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.output_dir / "log.txt").read_text())
            time.sleep(0.005)

    def end(self, timeout_seconds=240):
        """Waits for the launcher; returns its exit status."""
        status = self.process.wait(timeout_seconds)
        self._log.close()
        return status

    def starts(self):
        """How often the workers were started."""
        text = (self.output_dir / "log.txt").read_text()
        return 1 + text.count("restart")

    def weights(self):
        """The trained weights, or `None` if the job did not get so far."""
        path = self.output_dir / "weights.npz"
        if not path.exists():
            return None
        with np.load(path) as arrays:
            return [arrays[name] for name in arrays.files]


def quiet_run(folder, sharded=False):
    """Weights of the job to which nothing happens."""
    quiet = folder / "quiet"
    job = Job(quiet, quiet / "checkpoints", sharded=sharded)
    status = job.end()
    if status:
        raise RuntimeError((job.output_dir / "log.txt").read_text())
    return job.weights()


def strike(fault, folder, expected, random, epochs=EPOCHS, sharded=False):
    """Runs a job, lets the fault happen at a random step, and looks.

    Args:
        fault: One of `faults.FAULTS`.
        folder: Path to work in.
        expected: Weights of the quiet run.
        random: `random.Random` that chooses the moment and the victim.
        epochs: Integer, the length of the job, and of the quiet run.
        sharded: Boolean, whether each worker writes its part.
    """
    start = time.monotonic()
    with contextlib.ExitStack() as stack:
        checkpoints = folder / "checkpoints"
        if fault is faults.fill_the_disk:
            stack.enter_context(faults.SmallDisk(checkpoints))
        job = Job(folder, checkpoints, epochs, sharded)
        num_steps = epochs * STEPS_PER_EPOCH
        job.wait_for_step(random.randrange(1, num_steps * 9 // 10))
        step = job.step()
        what = fault(job, random)
        status = job.end()
    weights = job.weights()
    same = weights is not None and all(
        np.array_equal(a, b) for a, b in zip(weights, expected, strict=True)
    )
    seconds = time.monotonic() - start
    return Outcome(what, step, job.starts(), status, same, seconds)
