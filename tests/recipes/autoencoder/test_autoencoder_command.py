"""The command as a person runs it, in a process of its own."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from kerasmgpu.recipes import autoencoder
from kerasmgpu.recipes.datasets import generated_ratings
from tests import console
from tests.recipes.datasets import written_data

# Weights that differ in the last bits only, after a whole run.
SAME_MODEL = 1e-4


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Keywords of `run` for a small file of ratings."""
    folder = tmp_path_factory.mktemp("data")
    ratings = generated_ratings.generate(80, 60, 1500)
    written_data.write_ratings(folder / "ratings.csv", ratings)
    return {
        "data_path": str(folder / "ratings.csv"),
        "data_dir": str(folder / "cache"),
        "hidden_units": ["8"],
        # 60 rows: the last batch has 10, which 4 replicas share unevenly.
        "global_batch_size": 25,
    }


@pytest.fixture(scope="module")
def data_flags(data):
    """The same as flags of the command."""
    flags = {**data, "hidden_units": "8"}
    return [f"--{name}={value}" for name, value in flags.items()]


def run(*arguments):
    return console.run("autoencoder", *arguments)


def result_of(folder):
    return json.loads((pathlib.Path(folder) / "result.json").read_text())


@pytest.mark.nightly
def test_the_flags_as_run_train_the_same_model_on_four_replicas(data, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    one = autoencoder.run(
        **data, num_replicas=1, epochs=3, seed=5, output_dir=str(first)
    )
    done = run(
        f"--flagfile={first / 'flags.txt'}",
        "--num_replicas=4",
        "--virtual_devices=4",
        f"--output_dir={second}",
    )
    assert done.returncode == 0, done.stderr
    assert "held-out RMSE" in done.stdout
    four = result_of(second)
    assert (len(four["devices"]), len(one.devices)) == (4, 1)
    assert four["figures"] == pytest.approx(one.figures, abs=SAME_MODEL)
    assert four["loss"] == pytest.approx(one.loss, abs=SAME_MODEL)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_end(data, data_flags, tmp_path):
    # Long enough that it can't end before it is killed.
    cut = tmp_path / "cut"
    length = dict(num_replicas=1, epochs=20)
    flags = [f"--{name}={value}" for name, value in length.items()]
    process = console.start(
        "autoencoder",
        *data_flags,
        *flags,
        f"--output_dir={cut}",
        folder=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(cut.glob("checkpoints/checkpoint-00000[2-9]-*")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (cut / "result.json").exists()
    resumed = autoencoder.run(
        **data, **length, output_dir=str(cut), resume=True
    )
    whole = autoencoder.run(**data, **length)
    assert resumed.figures == whole.figures
    assert resumed.loss == whole.loss
