"""A run that is cut, ended or made longer ends as one that never was.

`polynomial` stands for all recipes, whose own tests resume once each.
"""

import json

import keras
import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import polynomial

LENGTH = dict(steps=8, steps_per_epoch=2, num_replicas=2, warmup_steps=3)


def run(folder, **keywords):
    # 3 steps a pass and 2 an epoch: a run goes on in the middle of a pass.
    keywords = {"global_batch_size": 4000, **LENGTH, **keywords}
    return polynomial.run(output_dir=folder, **keywords)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that is never interrupted: its result and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return run(folder), folder


def plain(path):
    """The records of a run without what depends on the clock."""
    timed = ("seconds", "per_second", "_share", "time", "host_")
    return [
        {
            name: value
            for name, value in json.loads(line).items()
            if not any(part in name for part in timed)
        }
        for line in (path / "history.jsonl").read_text().splitlines()
    ]


def test_the_folder_gets_everything(whole):
    result, folder = whole
    assert sorted(entry.name for entry in folder.glob("[!.]*")) == [
        "checkpoints",
        "devices.jsonl",
        "flags.txt",
        "history.jsonl",
        "learning_curve.png",
        "model.keras",
        "result.json",
        "run.json",
        "steps.jsonl",
        "times.jsonl",
    ]
    written = json.loads((folder / "result.json").read_text())
    assert written["figures"] == result.figures
    assert (written["steps"], written["global_batch_size"]) == (8, 4000)
    assert plain(folder)[-1]["loss"] == result.loss


def test_a_run_cut_and_ended_in_an_epoch_goes_on_to_the_same_end(
    whole, tmp_path, cut_after, preempt_after
):
    result, folder = whole
    cut_after(2, run, tmp_path)
    preempt_after(1, run, tmp_path, resume=True)
    checkpoints = sorted((tmp_path / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == [
        "checkpoint-000001-000000000.npz",
        "checkpoint-000002-000000000.npz",
        "checkpoint-000002-000000001.npz",
    ]
    resumed = run(tmp_path, resume=True)
    assert (resumed.figures, resumed.loss) == (result.figures, result.loss)
    assert run(tmp_path, resume=True) == resumed
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


@pytest.mark.slow
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    whole, tmp_path, caplog
):
    result, _ = whole
    run(tmp_path)
    *_, newest = sorted((tmp_path / "checkpoints").iterdir())
    newest.write_bytes(newest.read_bytes()[:-100])
    resumed = run(tmp_path, resume=True)
    assert (resumed.figures, resumed.loss) == (result.figures, result.loss)
    (line,) = [
        m for m in caplog.messages if "trying the checkpoint before" in m
    ]
    assert str(newest) in line
    assert any("epoch 4 of 4, step 0" in m for m in caplog.messages)
    for path in newest.parent.glob("checkpoint-*"):
        path.write_bytes(b"PK")
    with pytest.raises(InputError, match="All 3 checkpoints .* are damaged"):
        run(tmp_path, resume=True)


@pytest.mark.slow
def test_a_longer_run_is_as_if_it_had_been_longer_from_the_start(
    whole, tmp_path
):
    result, _ = whole
    run(tmp_path, steps=4)
    with pytest.raises(
        InputError, match="have 2 steps. Received: steps_per_epoch=4"
    ):
        run(tmp_path, steps_per_epoch=4, resume=True)
    # Which leaves the run as it was.
    run(tmp_path, steps=4, resume=True)
    resumed = run(tmp_path, resume=True)
    assert (resumed.figures, resumed.loss) == (result.figures, result.loss)
    assert resumed.steps == 8
    assert "--steps=8" in (tmp_path / "flags.txt").read_text()
