"""How a command starts and ends: what it prints, and a disk that fills up."""

import errno
import json
import os
import resource
import subprocess
import sys

import pytest

from kerasmgpu import __main__ as commands
from kerasmgpu.commands import command_line

RECIPES = [
    name
    for name, (module, _) in commands.COMMANDS.items()
    if module.startswith("kerasmgpu.recipes.")
]

# As h5py 3.14 says it.
HDF5 = (
    "[Errno 28] Can't synchronously write data (file write failed: time = Sun "
    "Nov 22 06:25:14 2026\n, filename = '/r/.tmp-c/w.h5', file descriptor = 3, "
    "errno = 28, error message = 'No space left on device', buf = "
    "0x7f57f2186810, total write size = 494848, offset = 307200)"
)


def closed_after(error):
    """HDF5's error at closing a file, after that at writing."""
    try:
        try:
            raise error
        finally:
            raise RuntimeError("Can't decrement id ref count (no reason)")
    except RuntimeError as last:
        return last


@pytest.mark.parametrize(
    "error, path",
    [
        (OSError(28, HDF5), "/r/.tmp-c/w.h5"),
        (RuntimeError(HDF5), "/r/.tmp-c/w.h5"),
        (closed_after(OSError(28, HDF5)), "/r/.tmp-c/w.h5"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "/x"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "/r"),
    ],
)
def test_it_is_said_in_one_line(error, path):
    message = command_line.disk_full_message(error, "/r")
    assert message.startswith(f"can't write {path}: ")
    assert "\n" not in message and "0x" not in message


@pytest.mark.parametrize(
    "error", [OSError(13, "Permission denied"), ValueError("no"), KeyError(28)]
)
def test_other_errors_are_not_ours(error):
    assert command_line.disk_full_message(error) is None


@pytest.mark.slow
def test_a_recipe_on_a_full_disk_leaves_nothing_half_written(tmp_path):
    folder = tmp_path / "run"

    def limit():
        # Like a full disk: whatever is larger can't be written.
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    environment = dict(os.environ)
    # Tests set it; without it, TensorFlow's own lines are left out.
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    done = subprocess.run(
        [sys.executable, "-m", "kerasmgpu.recipes.autoencoder"]
        + ["--epochs=1", f"--output_dir={folder}"],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit,
        env=environment,
    )
    assert done.returncode == 1
    waiting, laptop, line = done.stderr.splitlines()
    assert waiting.endswith(command_line.LOADING)
    assert "no GPU is visible" in laptop
    assert line.startswith("error: can't write ") and "File too large" in line
    assert "0x" not in line
    left = {path.name: path for path in folder.rglob("*")}
    assert set(left) == {
        *("flags.txt", "history.jsonl", "steps.jsonl", "times.jsonl"),
        "run.json",
        *("devices.jsonl", "checkpoints"),
    }
    for line in left["history.jsonl"].read_text().splitlines():
        json.loads(line)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Function that runs a command until it imports TensorFlow."""
    ours = tmp_path / "ours"
    ours.mkdir()
    for name in ("tensorflow", "keras"):
        (ours / f"{name}.py").write_text(
            "import os; os.write(2, b'imported\\n'); os._exit(0)"
        )
    (ours / "sklearn.py").touch()  # The study's data; not of the extra `test`.
    path = os.pathsep.join(filter(None, (str(ours), *sys.path)))
    monkeypatch.setenv("PYTHONPATH", path)

    def run(*arguments, environ=None):
        return subprocess.run(
            [sys.executable, "-m", "kerasmgpu", *arguments],
            env=os.environ | (environ or {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_says_that_tensorflow_is_loaded(run, recipe):
    done = run(recipe)
    assert done.stderr.splitlines() == [command_line.LOADING, "imported"]
    assert (done.returncode, done.stdout) == (0, "")


def test_only_the_first_worker_of_a_job_says_it(run):
    job = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": %s}'
    task = '{"type": "worker", "index": 1}'
    done = run("polynomial", environ={"TF_CONFIG": job % task})
    assert done.stderr.splitlines() == ["imported"]


def test_what_needs_no_tensorflow_does_not_speak_of_it(run):
    done = run(
        "plan",
        "--step_seconds=0.3",
        "--batch_size_per_replica=64",
        "--parameters=25.6e6",
        "--replica_counts=2",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_said_once_and_not_where_it_is_loaded(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.setattr(sys, "meta_path", [])
    command_line.announce_loading()
    (finder,) = sys.meta_path
    assert finder.find_spec("numpy") is None
    assert capsys.readouterr().err == ""
    assert finder.find_spec("keras") is None
    assert capsys.readouterr().err == command_line.LOADING + "\n"
    assert sys.meta_path == []
    monkeypatch.setitem(sys.modules, "tensorflow", sys)
    command_line.announce_loading()
    assert sys.meta_path == []
