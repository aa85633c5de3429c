"""What can happen to a job, done to a job that runs."""

import errno
import os
import pathlib
import signal
import subprocess
import time


def kill_a_worker(job, random):
    """kill -9 of any worker, the first one too."""
    victim = random.randrange(job.num_workers)
    job.kill(victim, signal.SIGKILL)
    return f"kill -9 worker {victim}"


def kill_in_a_save(job, random):
    """kill -9 of a worker while it writes a checkpoint, or its part of one."""
    deadline = time.monotonic() + 30
    while not job.is_saving():
        if time.monotonic() > deadline:
            raise TimeoutError("no checkpoint was being written for 30 s")
    victim = random.randrange(job.num_workers) if job.sharded else 0
    job.kill(victim, signal.SIGKILL)
    return f"kill -9 worker {victim} in a save"


def terminate_a_worker(job, random):
    """SIGTERM of any worker, as a scheduler that takes its machine back."""
    victim = random.randrange(job.num_workers)
    job.kill(victim, signal.SIGTERM)
    return f"SIGTERM worker {victim}"


def fill_the_disk(job, random):
    """No room in the checkpoint folder, for three seconds."""
    filler = job.checkpoint_dir / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    time.sleep(3)
    filler.unlink()
    return "disk full for 3 s"


FAULTS = (kill_a_worker, kill_in_a_save, terminate_a_worker, fill_the_disk)


class SmallDisk:
    """A checkpoint folder with little room: a tmpfs of its own."""

    def __init__(self, path, megabytes=64):
        self.path = pathlib.Path(path)
        self._megabytes = megabytes

    def __enter__(self):
        self.path.mkdir(parents=True)
        options = f"size={self._megabytes}m"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs"]
        subprocess.run([*command, str(self.path)], check=True)
        return self.path

    def __exit__(self, *error):
        subprocess.run(["umount", "-l", str(self.path)], check=True)


def can_mount():
    """Whether small disks can be made here: it takes root and `mount`."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
    )
    return done.returncode == 0
