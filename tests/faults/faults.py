"""The faults, and what must be said of each."""

import contextlib
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tests.chaos.faults import SmallDisk, can_mount
from tests.faults.program import EPOCH

TIMEOUT_SECONDS = 10
"""Heartbeat time-out of the jobs."""

_NAMED = r"launch: worker 1 on \S+ (failed first|is lost: \w+Error)"
"""The launcher names worker 1; which of the two depends on who ends first."""


def _signal(number):
    return lambda folder: os.kill(int((folder / "begun").read_text()), number)


def _fill(folder):
    with contextlib.suppress(OSError):
        with (folder / "disk" / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 14))


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of `program.py`, and what must be said.

    Attributes:
        what: String, the fault.
        says: Tuple of regular expressions, all of which must be found;
            `{epoch}` stands for the epoch of the fault, counted from 1, and
            `{after}` for the next one.
        workers: Integer, workers of the job; the last one has the fault.
        strike: Function of the folder, called once the fault has begun.
        on_disk: Whether `disk` in the folder is a small disk.
        looks_at: Name of the file of the folder that must say it.
    """

    what: str
    says: tuple[str, ...]
    workers: int = 2
    strike: Callable[[pathlib.Path], None] = lambda folder: None
    on_disk: bool = False
    looks_at: str = "log.txt"


FAULTS = {
    "stopped": Fault(
        "a worker is stopped (SIGSTOP)",
        (rf"worker 1 on \S+ is lost: no heartbeat for {TIMEOUT_SECONDS} s",),
        strike=_signal(signal.SIGSTOP),
    ),
    "killed": Fault(
        "a worker is killed (SIGKILL)",
        (r"worker 1 on \S+ failed first: killed by SIGKILL",),
        strike=_signal(signal.SIGKILL),
    ),
    "data block": Fault(
        "a data set blocks on one worker",
        (
            r"worker 1 is waiting for input since \d+ s; worker 0 waits for "
            r"it in step \d+ of epoch {epoch}",
            r'fault\.wait\("data block"\)',
        ),
    ),
    "data raise": Fault(
        "a data set raises on one worker",
        (_NAMED, "shard 9 can't be read"),
    ),
    "callback sleeps": Fault(
        "a callback sleeps on one worker",
        (
            r"worker 1 is in callback Users\.on_epoch_end of epoch {epoch} since \d+ "
            "s; worker 0 waits for it in a collective of all workers",
        ),
    ),
    "skipped evaluation": Fault(
        "only one worker evaluates: the other skips its collectives",
        (
            r"worker 1 \S+ is out of step: it was in a collective of all "
            r"workers.*, while other workers were in another collective\..* it "
            "is in .* epoch {after}",
            r"in on_epoch_end\n.*model\.evaluate",
        ),
    ),
    "NaN in layer 7": Fault(
        "a NaN in layer 7",
        (
            r"epoch 3, step 2 \(step 10 of this fit\), replica 1",
            r"Layer 'layer_7' \(Logarithm\).* a NaN.* \(row 3 of the batch",
        ),
        workers=1,
    ),
    "infinity in a row": Fault(
        "an infinity in one row of the input",
        (
            r"epoch 3, step 2 \(step 10 of this fit\), worker 1, replica 1",
            "The batch itself has an infinity: x, row 3, column 2",
            _NAMED,
        ),
    ),
    "out of memory": Fault(
        "one worker runs out of memory",
        (_NAMED, r"'\w+' ran out of memory"),
    ),
    "slow worker": Fault(
        "one worker is slow",
        (r'"slowest_worker": 1, "slowest_worker_step_seconds": 0\.[3-9]',),
        looks_at="throughput.jsonl",
    ),
    "checkpoint": Fault(
        "the disk is full while a checkpoint is written",
        (r"A checkpoint could not be written to \S+disk .*No space left",),
        workers=1,
        strike=_fill,
        on_disk=True,
    ),
    "lost GPU": Fault(
        "NVML loses a GPU",
        (r"GPU:0: GPU 0 \(GPU-\S+\) is lost",),
        workers=1,
    ),
}


@dataclasses.dataclass
class Outcome:
    """What became of a fault: seconds until it was said, and the text."""

    seconds: float | None
    said: str
    log: str


def strike(names, folder, hang_seconds=0.0, within_seconds=60.0):
    """Runs a training, lets faults happen, and waits until they are named.

    Args:
        names: List of keys of `FAULTS`, of which only the last may end the
            training, and which are alike but for `what` and `says`.
        folder: Path to work in.
        hang_seconds: `HangWatch`'s argument; 0: its default.
        within_seconds: How long to wait for each name.

    Returns:
        List of `Outcome`s, up to the first fault that was not named.
    """
    fault, folder = FAULTS[names[0]], pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable]
    if fault.workers > 1:
        command += ["-m", "kerasmgpu.launch", f"--num_workers={fault.workers}"]
        command += [f"--timeout_seconds={TIMEOUT_SECONDS}", "--"]
    command += ["-m", "tests.faults.program"]
    command += [",".join(names), str(folder), str(hang_seconds)]
    with contextlib.ExitStack() as stack:
        if fault.on_disk:
            stack.enter_context(SmallDisk(folder / "disk", megabytes=2))
        log = stack.enter_context((folder / "log.txt").open("w"))
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            outcomes = []
            for number, name in enumerate(names):
                epoch = EPOCH + 2 * number + 1
                says = [
                    words.replace("{epoch}", f"{epoch}").replace(
                        "{after}", f"{epoch + 1}"
                    )
                    for words in FAULTS[name].says
                ]
                fault = dataclasses.replace(FAULTS[name], says=says)
                outcomes.append(_watch(fault, folder, process, within_seconds))
                if outcomes[-1].seconds is None:
                    break
                if number + 1 < len(names):
                    (folder / "begun").unlink()
                    (folder / f"over {name}").touch()
            return outcomes
        finally:
            _end(process, folder)


def can_strike(name):
    """Whether this machine can have the fault: small disks take root."""
    return not FAULTS[name].on_disk or can_mount()


def _watch(fault, folder, process, within_seconds):
    begun = folder / "begun"
    deadline = time.monotonic() + 120
    while not begun.exists() and process.poll() is None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    start = time.monotonic()
    time.sleep(0.2)  # The file is written.
    fault.strike(folder)
    while True:
        is_over = process.poll() is not None
        seconds = time.monotonic() - start
        text = _read(folder / fault.looks_at)
        found = [re.search(words, text) for words in fault.says]
        if all(found):
            said = "; ".join(" ".join(match[0].split()) for match in found)
            return Outcome(seconds, said, _read(folder / "log.txt"))
        if is_over or seconds > within_seconds:
            return Outcome(None, "", _read(folder / "log.txt"))
        time.sleep(0.2)


def _read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def _end(process, folder):
    """Ends the training with all of its processes."""
    if process.poll() is None:
        begun = folder / "begun"
        if begun.exists():
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(begun.read_text()), signal.SIGKILL)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
