"""One set of files, whoever writes them, and nothing lost between jobs."""

import importlib.util
import json
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.workers import files_program

pytestmark = [pytest.mark.slow, pytest.mark.job_case(2, 1, "files")]


def launch(folder, *stop_at):
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", "-m", "tests.workers.files_program", str(folder)]
    return subprocess.run(
        [*command, *stop_at], capture_output=True, text=True, timeout=300
    )


def weights(folder):
    with np.load(folder / "weights.npz") as arrays:
        return [arrays[name] for name in arrays.files]


@pytest.fixture
def whole(job):
    """Folder of a job of two workers that nothing interrupted."""
    return job.files


def test_every_callback_wrote_one_set_of_files(whole):
    names = {path.name for path in whole.iterdir()} - {"board"}
    assert names == {
        "model-1.keras",
        "model-2.keras",
        "model-3.keras",
        "final.keras",
        "log.csv",
        "checkpoints",
        "weights.npz",
        "losses.json",
        "history.json",
    }
    lines = (whole / "log.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["epoch", "0", "1", "2"]
    if importlib.util.find_spec("tensorboard"):
        assert len(list((whole / "board" / "train").glob("events*"))) == 1


def test_one_worker_may_look_at_the_results_of_steps(whole):
    *of_steps, of_all = json.loads((whole / "losses.json").read_text())
    assert len(of_steps) == 7 and np.isfinite(of_steps).all()
    assert of_steps[-1] == pytest.approx(of_all, rel=1e-6)


@pytest.mark.parametrize("name", ["model-3.keras", "final.keras"])
def test_the_model_file_holds_the_trained_weights(whole, name):
    model = keras.saving.load_model(whole / name)
    for found, expected in zip(model.get_weights(), weights(whole)):
        np.testing.assert_array_equal(found, expected)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """Folder of a job of two workers that ended in its second epoch."""
    folder = tmp_path_factory.mktemp("broken")
    assert launch(folder, "11").returncode == 9
    assert not (folder / "weights.npz").exists()
    return folder


def test_one_process_goes_on_in_the_middle_of_an_epoch(
    whole, broken, tmp_path, replicas
):
    """Two workers do in `test_killed_in_a_save.py` and `test_resuming.py`."""
    shutil.copytree(broken, tmp_path, dirs_exist_ok=True)
    files_program.run(lambda: replicas(1), "", tmp_path)
    for found, expected in zip(weights(tmp_path), weights(whole), strict=True):
        np.testing.assert_allclose(found, expected, 1e-4, 1e-6)
    history, expected = (
        json.loads((folder / "history.json").read_text())
        for folder in (tmp_path, whole)
    )
    np.testing.assert_allclose(history["loss"], expected["loss"], 1e-5)
