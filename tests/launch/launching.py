"""Starts real launchers whose workers are tiny programs without TensorFlow."""

import contextlib
import pathlib
import signal
import subprocess
import sys
import time

from tests import console

_PRELUDE = """
import json, os, pathlib, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
run = int(os.environ["KERASMGPU_RESTART"])

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.01)

def write(name, text):
    pathlib.Path(name + ".part").write_text(str(text))
    os.replace(name + ".part", name)

def save_on_sigterm():
    def save(*_):
        write(f"saved-{index}", run)
        sys.exit(75)
    signal.signal(signal.SIGTERM, save)
"""
"""What every test's program may use; it runs in the test's folder."""


@contextlib.contextmanager
def launcher(folder, program, *flags, command=None):
    """Starts a launcher in `folder`; kills it, if need be, in the end."""
    command = command or [sys.executable, "-c", _PRELUDE + program]
    process = subprocess.Popen(
        console.command("launch", *flags, "--", *command),
        cwd=folder,
        env=console.environment(CUDA_VISIBLE_DEVICES="-1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()
        process.stdout.close()


def finish(process, seconds=20):
    """Waits for a launcher; returns its exit status and its output."""
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


def launch(folder, program, *flags, command=None):
    """Runs a launcher to its end."""
    with launcher(folder, program, *flags, command=command) as process:
        return finish(process)


def wait_until(condition, seconds=10):
    """Waits for something to become true, and fails if it doesn't."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s")
        time.sleep(0.02)


def wait_for_files(folder, *names):
    """Waits for files; returns their contents as integers."""
    paths = [folder / name for name in names]
    wait_until(lambda: all(path.exists() for path in paths))
    return [int(path.read_text()) for path in paths]


def is_alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
