"""A recipe runs unchanged in a job, and only the first worker writes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from kerasmgpu.callbacks.checkpoints import file_format
from kerasmgpu.recipes import autoencoder

pytestmark = pytest.mark.slow

SETTINGS = {"global_batch_size": 250, "epochs": 2, "hidden_units": ["8"]}
FLAGS = ["--global_batch_size=250", "--hidden_units=8"]


def launch(*flags, num_workers):
    command = [sys.executable, "-m", "kerasmgpu.launch"]
    command += [f"--num_workers={num_workers}", "--", "-m"]
    command += ["kerasmgpu.recipes.autoencoder", *FLAGS, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def train(folder, num_workers):
    """Runs a job that ends with a result in `folder`; returns its output."""
    flags = ["--epochs=2", f"--output_dir={folder}", "--resume"]
    done = launch(*flags, num_workers=num_workers)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Folder and result of a run in one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    return folder, autoencoder.run(**SETTINGS, output_dir=str(folder))


@pytest.mark.nightly
def test_the_autoencoder_ends_as_in_one_process(alone, tmp_path):
    folder = tmp_path / "run"
    output = train(folder, num_workers=2)
    assert "epoch 2/2" in output
    result = json.loads((folder / "result.json").read_text())
    assert result["replicas"] == 2
    assert (folder / "model.keras").is_file()
    assert "[1] epoch" not in output and "[0] epoch" in output
    folder_alone, result_alone = alone
    assert result["loss"] == pytest.approx(result_alone.loss, rel=1e-5)
    assert result["figures"]["rmse"] == pytest.approx(
        result_alone.figures["rmse"], rel=1e-5
    )
    weights, expected = (
        state_in(path / "checkpoints" / "checkpoint-000002-000000000.npz")
        for path in (folder, folder_alone)
    )
    assert weights.keys() == expected.keys() and len(weights) > 4
    for name, value in weights.items():
        np.testing.assert_allclose(value, expected[name], 1e-4, 1e-6, name)
    # A finished run has nothing left to do, for fewer workers too.
    assert "epoch 2/2" not in train(folder, num_workers=1)


def state_in(checkpoint):
    """Every variable of a checkpoint, the optimizer's too, by its place."""
    with open(checkpoint, "rb") as file:
        manifest, arrays = file_format.read(file)
    variables = enumerate(manifest["variables"])
    return {
        (index, variable["kind"]): array
        for (index, variable), array in zip(variables, arrays)
    }


def test_bad_input_ends_the_job_with_one_line(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "something").touch()
    done = launch(f"--output_dir={tmp_path / 'run'}", num_workers=2)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "error: --output_dir is not empty" in done.stdout + done.stderr
