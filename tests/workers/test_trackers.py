"""Experiment trackers, the real ones: one run for a job of two workers."""

import re
import subprocess
import sys
import zipfile

import keras
import pytest

pytestmark = pytest.mark.slow
ESCAPES = r"\x1b\[[\d;]*m"


def train(folder, tool):
    """Trains in two workers; returns what they printed."""
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", "-m", "tests.workers.tracker_program", str(folder), tool]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return re.sub(ESCAPES, "", done.stdout)


@pytest.mark.job_case(2, 1, "tracker noting")
def test_trackers_are_called_once_and_the_bar_is_printed_once(job):
    lines = [re.sub(ESCAPES, "", line) for line in job.lines]
    logs = "['loss', 'val_loss']"
    notes = {path.name: path.read_text() for path in job.files.iterdir()}
    assert notes == dict.fromkeys(
        ("on-first-worker", "bare"), f"made\n0 {logs}\n1 {logs}\n"
    )
    epochs = [line for line in lines if "Epoch" in line]
    assert epochs == ["[0] Epoch 1/2", "[0] Epoch 2/2"]
    assert len([line for line in lines if "val_loss" in line]) == 2


@pytest.mark.job_case(2, 1, "tracker saving")
def test_callbacks_on_the_first_worker_save_a_sharded_model(job):
    saved = [
        line for line in job.lines if re.match(r"\[\d\] (Bare|Saves) ", line)
    ]
    assert [line.split()[:2] for line in saved] == [
        ["[0]", "Bare"],
        ["[0]", "Saves"],
    ] * 2
    names = {path.name for path in job.files.glob("*.keras")}
    assert names == {
        f"{n}.{e}.keras" for n in ("Bare", "Saves") for e in (0, 1)
    }
    keras.saving.load_model(job.files / "Bare.1.keras")
    assert len((job.files / "log.csv").read_text().splitlines()) == 3


@pytest.mark.parametrize("tool", ["mlflow", "autolog"])
def test_mlflow_has_one_run_with_the_logs_of_each_epoch(tmp_path, tool):
    pytest.importorskip("mlflow")
    pytest.importorskip("pandas")
    train(tmp_path, tool)
    (metrics,) = tmp_path.glob("mlruns/*/*/metrics")
    for name in ("loss", "val_loss"):
        assert len((metrics / name).read_text().splitlines()) == 2


def test_wandb_has_one_run_and_its_checkpoints_are_whole(tmp_path):
    pytest.importorskip("wandb")
    printed = train(tmp_path, "wandb")
    assert len(list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))) == 1
    # Steps 0 to 7, once.
    assert len(re.findall(r"batch/batch_step\s+7$", printed, re.M)) == 1
    names = {path.name for path in tmp_path.glob("*.keras")}
    assert names == {"model-1.keras", "model-2.keras"}
    keras.saving.load_model(tmp_path / "model-2.keras")


def test_comet_has_one_experiment(tmp_path):
    pytest.importorskip("comet_ml")
    train(tmp_path, "comet")
    (archive,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(archive) as files:
        messages = files.read("messages.json").decode()
    assert messages.count('"val_loss"') >= 2
