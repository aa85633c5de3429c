"""A disk that fills up: one line, and nothing half-written."""

import errno
import json
import os
import resource
import subprocess
import sys
import time

import pytest

from kerasmgpu.commands import disk_full, loading

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
    message = disk_full.message(error, "/r")
    assert message.startswith(f"can't write {path}: ")
    assert "\n" not in message and "0x" not in message


@pytest.mark.parametrize(
    "error", [OSError(13, "Permission denied"), ValueError("no"), KeyError(28)]
)
def test_other_errors_are_not_ours(error):
    assert disk_full.message(error) is None


def test_what_this_command_began_is_removed(tmp_path):
    old = tmp_path / ".tmp-old"
    old.write_text("of another process, or of an earlier one")
    os.utime(old, (1, 1))
    for folder in (tmp_path, tmp_path / "dual"):
        (folder / ".tmp-checkpoint-000001" / "deep").mkdir(parents=True)
        (folder / ".tmp-checkpoint-000001" / "deep" / "w.h5").write_text("x")
        (folder / ".tmp-model.keras").write_text("x")
        (folder / "flags.txt").write_text("x")
    with open(tmp_path / ".tmp-open", "w") as still_open:
        still_open.write("of HDF5")
        still_open.flush()
        disk_full.remove_temporary(tmp_path, time.time() - 10)
        assert os.fstat(still_open.fileno()).st_size == 0
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [
        ".tmp-old",
        "flags.txt",
        "flags.txt",
    ]


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
    waiting, line = done.stderr.splitlines()
    assert waiting.endswith(loading.LINE)
    assert line.startswith("error: can't write ") and "File too large" in line
    assert "0x" not in line
    left = {path.name: path for path in folder.rglob("*")}
    assert set(left) == {"flags.txt", "history.jsonl", "checkpoints"}
    for line in left["history.jsonl"].read_text().splitlines():
        json.loads(line)
