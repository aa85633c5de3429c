"""The recipe from its keywords to its result."""

import os
import pathlib
import signal
import subprocess
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import autoencoder
from kerasmgpu.recipes.datasets.ratings import generate
from tests import console
from tests.recipes.datasets import written_data

PRESETS = pathlib.Path(autoencoder.__file__).parent / "presets"


@pytest.fixture(scope="module")
def ratings_path(tmp_path_factory):
    """A small ratings.csv: 80 users, 60 items."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    written_data.write_ratings(path, generate(80, 60, 1500))
    return path


def settings(ratings_path, **keywords):
    """Keywords of a small run."""
    return {
        "num_replicas": 1,
        "data_path": str(ratings_path),
        "data_dir": str(ratings_path.parent / "cache"),
        # 60 rows: the last batch has 10; two replicas share 25 unevenly.
        "global_batch_size": 25,
        "hidden_units": ["8"],
        "epochs": None if "steps" in keywords else 4,
        **keywords,
    }


def run(ratings_path, **keywords):
    return autoencoder.run(**settings(ratings_path, **keywords))


@pytest.mark.slow
def test_the_default_beats_the_baseline_on_generated_ratings(capsys):
    result = autoencoder.run(num_replicas=1, epochs=8)
    assert result.figures["rmse"] < result.figures["baseline_rmse"] - 0.03
    assert result.data.startswith("generated")
    assert "generated, not real" in capsys.readouterr().out


# 3 steps a pass and 2 an epoch: a run goes on in the middle of a pass.
LENGTH = dict(steps=8, steps_per_epoch=2, warmup_steps=3)


@pytest.mark.slow
def test_two_replicas_ended_in_an_epoch_go_on_to_the_end_of_one(
    ratings_path, tmp_path, preempt_after
):
    one, other = (run(ratings_path, seed=seed, **LENGTH) for seed in (0, 1))
    assert one.figures["rmse"] != other.figures["rmse"]
    keywords = dict(num_replicas=2, output_dir=str(tmp_path), **LENGTH)
    preempt_after(5, run, ratings_path, **keywords)
    two = run(ratings_path, resume=True, **keywords)
    assert two.devices == ["CPU:0", "CPU:1"]
    assert two.loss == pytest.approx(one.loss, abs=1e-5)
    assert two.figures == pytest.approx(one.figures, abs=1e-5)
    model = keras.models.load_model(tmp_path / "model.keras")
    row = tf.sparse.from_dense(np.eye(1, 80, dtype="float32") * 4)
    assert model(row).shape == (1, 80)


@pytest.mark.slow
def test_a_killed_command_goes_on_to_the_same_end(ratings_path, tmp_path):
    folder = tmp_path / "run"
    # Long enough that it can't end before it is killed.
    keywords = settings(ratings_path, epochs=20)
    flags = {**keywords, "hidden_units": "8", "output_dir": folder}
    process = console.start(
        "autoencoder",
        *(f"--{name}={value}" for name, value in flags.items()),
        folder=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/checkpoint-00000[2-9]-*")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert not (folder / "result.json").exists()
    resumed = autoencoder.run(**keywords, output_dir=str(folder), resume=True)
    whole = autoencoder.run(**keywords)
    assert (resumed.figures, resumed.loss) == (whole.figures, whole.loss)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "name", sorted(p.name for p in PRESETS.glob("*.flags"))
)
def test_presets_train(ratings_path, name, flags_of):
    keywords = flags_of(autoencoder, PRESETS / name)
    keywords.update(steps=6, epochs=None, steps_per_epoch=3)
    result = run(ratings_path, **keywords)
    assert result.global_batch_size == 250
    assert np.isfinite([result.loss, result.figures["rmse"]]).all()


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(dataset="ml-1m"), "--data_path and --dataset say the same"),
        (dict(weight_penalty=-1.0), "--weight_penalty: .* Received: -1.0"),
        (dict(output_dir="/proc/run"), "--output_dir can't be written"),
        (
            dict(global_batch_size=1, num_replicas=2),
            "--global_batch_size=1 for 2 replicas",
        ),
    ],
)
def test_bad_settings_are_refused(ratings_path, keywords, message):
    with pytest.raises(InputError, match=message):
        run(ratings_path, **keywords)
