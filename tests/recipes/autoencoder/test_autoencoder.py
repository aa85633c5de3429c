"""The recipe from its keywords to its result."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import autoencoder
from kerasmgpu.recipes.autoencoder import generated_ratings
from tests.recipes.autoencoder import ratings_file

PRESETS = pathlib.Path(autoencoder.__file__).parent / "presets"


@pytest.fixture(scope="module")
def ratings_path(tmp_path_factory):
    """A small ratings.csv: 80 users, 60 items."""
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    ratings = generated_ratings.generate(80, 60, 1500)
    ratings_file.write(path, ratings)
    return path


def run(ratings_path, **keywords):
    return autoencoder.run(
        **{
            "num_replicas": 1,
            "data_path": str(ratings_path),
            "data_dir": str(ratings_path.parent / "cache"),
            "global_batch_size": 25,
            "hidden_units": ["8"],
            "epochs": None if "steps" in keywords else 4,
            **keywords,
        }
    )


def test_the_default_beats_the_baseline_on_generated_ratings(capsys):
    result = autoencoder.run(num_replicas=1, epochs=8)
    assert result.figures["rmse"] < result.figures["baseline_rmse"] - 0.03
    assert result.data.startswith("generated")
    assert "generated, not real" in capsys.readouterr().out


# 3 steps a pass and 2 an epoch: a run goes on in the middle of a pass.
LENGTH = dict(num_replicas=2, steps=8, steps_per_epoch=2, warmup_steps=3)


@pytest.fixture(scope="module")
def whole(ratings_path, tmp_path_factory):
    """A run that is never interrupted: its result and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return run(ratings_path, output_dir=str(folder), **LENGTH), folder


def test_the_folder_gets_everything_and_the_model_loads(whole):
    result, folder = whole
    assert sorted(entry.name for entry in folder.glob("[!.]*")) == [
        "checkpoints",
        "flags.txt",
        "history.jsonl",
        "learning_curve.png",
        "model.keras",
        "result.json",
    ]
    written = json.loads((folder / "result.json").read_text())
    assert written["figures"] == result.figures
    assert written["devices"] == ["CPU:0", "CPU:1"]
    assert (written["steps"], written["global_batch_size"]) == (8, 25)
    history = (folder / "history.jsonl").read_text().splitlines()
    assert json.loads(history[-1])["val_rmse"] == result.figures["rmse"]
    model = keras.models.load_model(folder / "model.keras")
    row = tf.sparse.from_dense(np.eye(1, 80, dtype="float32") * 4)
    assert model(row).shape == (1, 80)


def test_the_same_seed_gives_the_same_figures(ratings_path, whole):
    first, _ = whole
    second, other = (run(ratings_path, seed=s, **LENGTH) for s in (0, 1))
    assert (first.figures, first.loss) == (second.figures, second.loss)
    assert first.figures["rmse"] != other.figures["rmse"]


def plain(path):
    """The records of a run without what depends on the clock."""
    timed = ("seconds", "per_second", "_share")
    return [
        {
            name: value
            for name, value in json.loads(line).items()
            if not any(part in name for part in timed)
        }
        for line in (path / "history.jsonl").read_text().splitlines()
    ]


def test_a_run_cut_and_ended_in_an_epoch_goes_on_to_the_same_end(
    ratings_path, whole, tmp_path, cut_after, preempt_after
):
    result, folder = whole
    keywords = dict(output_dir=str(tmp_path), **LENGTH)
    cut_after(2, run, ratings_path, **keywords)
    preempt_after(1, run, ratings_path, resume=True, **keywords)
    checkpoints = sorted((tmp_path / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == [
        "checkpoint-000001-000000000.npz",
        "checkpoint-000002-000000000.npz",
        "checkpoint-000002-000000001.npz",
    ]
    resumed = run(ratings_path, resume=True, **keywords)
    assert (resumed.figures, resumed.loss) == (result.figures, result.loss)
    assert run(ratings_path, resume=True, **keywords) == resumed
    assert plain(tmp_path) == plain(folder)
    models = [
        keras.models.load_model(path / "model.keras")
        for path in (tmp_path, folder)
    ]
    for model in models:
        assert int(model.optimizer.iterations) == 8
    states = [[*m.variables, *m.optimizer.variables] for m in models]
    for variable, expected in zip(*states, strict=True):
        np.testing.assert_array_equal(variable, expected)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    ratings_path, whole, tmp_path, caplog
):
    result, folder = whole
    shutil.copytree(
        folder, tmp_path / "run", ignore=shutil.ignore_patterns(".*")
    )
    keywords = dict(output_dir=str(tmp_path / "run"), **LENGTH)
    *_, newest = sorted((tmp_path / "run" / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    resumed = run(ratings_path, resume=True, **keywords)
    assert (resumed.figures, resumed.loss) == (result.figures, result.loss)
    (line,) = [m for m in caplog.messages if "no whole checkpoint" in m]
    assert str(newest) in line
    assert any("epoch 4, step 0" in message for message in caplog.messages)
    for path in newest.parent.glob("checkpoint-*"):
        path.write_bytes(b"PK")
    with pytest.raises(InputError, match="None of the 3 checkpoints .* whole"):
        run(ratings_path, resume=True, **keywords)


def test_a_longer_run_is_as_if_it_had_been_longer_from_the_start(
    ratings_path, tmp_path
):
    keywords = dict(learning_rate_decay="none", warmup_steps=4)
    longer = run(ratings_path, epochs=4, **keywords)
    keywords["output_dir"] = str(tmp_path / "run")
    run(ratings_path, epochs=2, **keywords)
    resumed = run(ratings_path, epochs=4, resume=True, **keywords)
    assert (resumed.figures, resumed.loss) == (longer.figures, longer.loss)
    assert resumed.steps == 12
    assert "--epochs=4" in (tmp_path / "run" / "flags.txt").read_text()


@pytest.mark.parametrize(
    "name", sorted(p.name for p in PRESETS.glob("*.flags"))
)
def test_presets_train(ratings_path, name, flags_of):
    keywords = flags_of(autoencoder, PRESETS / name)
    keywords.update(steps=6, epochs=None, steps_per_epoch=3)
    result = run(ratings_path, **keywords)
    assert result.global_batch_size == 250
    assert np.isfinite([result.loss, result.figures["rmse"]]).all()


def test_the_published_preset_is_the_published_experiment(flags_of):
    keywords = flags_of(autoencoder, PRESETS / "published.flags")
    assert keywords["hidden_units"] == ["10", "5", "10"]
    assert keywords["learning_rate"] == 0.03
    assert keywords["global_batch_size"] == 250
    assert keywords["steps"] == 10_000


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(hidden_units=["10", "x"]), "--hidden_units .* Received: 10,x"),
        (dict(dataset="ml-1m"), "--data_path and --dataset say the same"),
        (dict(held_out=1.0), "--held_out must be a fraction .* 1.0"),
        (dict(weight_penalty=-1.0), "--weight_penalty .* Received: -1.0"),
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
