"""The callbacks of a run in one list."""

import json
import subprocess
import sys

import keras
import numpy as np
import pytest

from kerasmgpu import InputError, callbacks
from kerasmgpu.callbacks import default_callbacks
from tests.callbacks import event_files

X = np.random.default_rng(0).normal(size=(53, 4)).astype("float32")

KINDS = {
    "throughput": callbacks.ThroughputLogger,
    "progress": callbacks.Progress,
    "hang_watch": callbacks.HangWatch,
    "not_finite": callbacks.NotFinite,
    "devices": callbacks.DeviceStats,
    "record": callbacks.RunRecord,
    "monitors": callbacks.Monitors,
    "checkpoint": callbacks.Checkpoint,
}
"""Arguments in the order of the list."""

IN_A_FOLDER = ("devices", "record", "monitors", "checkpoint")


def kinds(*arguments, **keywords):
    return [type(made) for made in callbacks.default(*arguments, **keywords)]


def test_all_are_there_and_told_in_a_line(tmp_path, capsys):
    assert kinds(tmp_path) == list(KINDS.values())
    names = ", ".join(kind.__name__ for kind in KINDS.values())
    assert capsys.readouterr().out == (
        f"callbacks: {names}; files in {tmp_path}, shown by kerasmgpu report "
        f"{tmp_path}\n"
    )


@pytest.mark.parametrize("verbose, lines", [(0, 2), (2, 0)])
def test_something_is_seen_of_every_fit(capsys, verbose, lines):
    made = callbacks.default()
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    capsys.readouterr()
    model.fit(
        X, X[:, :1], batch_size=8, epochs=2, verbose=verbose, callbacks=made
    )
    found = capsys.readouterr().out
    assert found.count("examples/s,") == lines
    assert found.count("- examples/s: ") == 2 - lines


@pytest.mark.parametrize("num_gpus, in_job", [(2, False), (1, True)])
def test_steps_are_compared_on_several_gpus(
    tmp_path, monkeypatch, num_gpus, in_job
):
    monkeypatch.setattr(default_callbacks, "num_logical", lambda _: num_gpus)
    assert (callbacks.Audit in kinds(tmp_path)) == (num_gpus > 1)
    if in_job:
        addresses = {"worker": ["a:1", "b:1"]}
        job = {"cluster": addresses, "task": {"type": "worker", "index": 1}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(job))
    (audit,) = (
        each
        for each in callbacks.default(tmp_path)
        if isinstance(each, callbacks.Audit)
    )
    assert audit.path == str(tmp_path / "evidence.json")
    assert callbacks.Audit not in kinds(tmp_path, audit=False)


@pytest.mark.parametrize("name", KINDS)
def test_each_is_left_out_by_its_argument(name, tmp_path):
    others = [kind for key, kind in KINDS.items() if key != name]
    assert kinds(tmp_path, **{name: False}) == others


def test_without_a_folder_nothing_is_written():
    expected = [kind for name, kind in KINDS.items() if name not in IN_A_FOLDER]
    made = callbacks.default()
    assert [type(each) for each in made] == expected
    assert made[2].path is None


def test_a_dictionary_sets_arguments(tmp_path):
    made = callbacks.default(
        tmp_path,
        hang_watch={"hang_seconds": 7},
        monitors={"norms": "global", "log_dir": tmp_path / "elsewhere"},
        checkpoint={"every_steps": 3},
    )
    by_kind = {type(each): each for each in made}
    watch = by_kind[callbacks.HangWatch]
    assert (watch.hang_seconds, watch.path) == (7, str(tmp_path / "hangs.txt"))
    monitors = by_kind[callbacks.Monitors]
    assert monitors.norms == "global"
    assert monitors.log_dir == str(tmp_path / "elsewhere")
    assert by_kind[callbacks.Checkpoint].every_steps == 3


def test_a_callback_takes_the_place(tmp_path):
    own = callbacks.Checkpoint(tmp_path / "own", best="val_loss")
    stop = keras.callbacks.TerminateOnNaN()
    made = callbacks.default(checkpoint=own, not_finite=stop)
    assert made[-1] is own
    assert stop in made
    assert len(made) == 5


def test_callbacks_of_the_user_see_the_speed_and_are_recorded(tmp_path):
    own = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    made = callbacks.default(tmp_path, extra=[own])
    assert made[1] is own


@pytest.mark.parametrize(
    "keywords, message",
    [
        (
            {"monitors": 5},
            "Monitors's arguments, or a callback. Received: monit",
        ),
        ({"checkpoint": None}, "checkpoint must be True, False, a dictionary"),
        ({"monitors": {"norm": "all"}}, "Monitors has no argument 'norm'"),
        ({"record": {}}, "RunRecord needs a folder: pass run_dir, or 'folder'"),
        ({"monitors": {"log_dir": "x", "every": 0}}, "every must be"),
    ],
)
def test_what_is_no_choice(keywords, message):
    with pytest.raises(InputError, match=message) as error:
        callbacks.default(**keywords)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["file", "file/run"])
def test_a_file_in_the_folders_place_is_named(tmp_path, name, capsys):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="run_dir must be a folder") as error:
        callbacks.default(tmp_path / name)
    which = "which" if name == "file" else f"and {file}"
    assert f"{which} is a file" in str(error.value)
    assert capsys.readouterr().out == ""


def train(strategy, folder, epochs, **keywords):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.compile("adam", "mse", **keywords)
    made = callbacks.default(folder, monitors={"every": 1, "norms": "global"})
    history = model.fit(
        X, X[:, :2], batch_size=20, epochs=epochs, verbose=0, callbacks=made
    )
    return model, history.history


@pytest.mark.slow
@pytest.mark.parametrize(
    "keywords",
    [
        {},
        pytest.param({"steps_per_execution": 2}, marks=pytest.mark.slow),
        pytest.param({"run_eagerly": True}, marks=pytest.mark.slow),
    ],
    ids=lambda keywords: next(iter(keywords), "plain"),
)
def test_a_run_is_recorded_and_resumed(keywords, replicas, tmp_path, caplog):
    strategy = replicas(2)
    train(strategy, tmp_path / "run", 1, **keywords)
    resumed, history = train(strategy, tmp_path / "run", 2, **keywords)
    assert "resuming from" in caplog.text
    assert len(history["examples_per_second"]) == 2
    whole, _ = train(strategy, tmp_path / "whole", 2, **keywords)
    for one, other in zip(whole.get_weights(), resumed.get_weights()):
        np.testing.assert_array_equal(one, other)
    lines = (tmp_path / "run/history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    assert "host_memory_bytes_max" in json.loads(lines[0])
    norms = event_files.values(tmp_path / "run/tensorboard")
    assert min(norms["l2_norm/grad/global"].values()) > 0
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"checkpoints", "devices.jsonl", "run.json", "steps.jsonl"} < names


INLINE = """
import keras, numpy as np
import kerasmgpu
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((4, 2), "float32")
{line}
print("trained")
"""


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "line, works",
    [
        (
            "model.fit(x, x[:, :1], callbacks=kerasmgpu.callbacks.default())",
            False,
        ),
        (
            "made = kerasmgpu.callbacks.default()\n"
            "model.fit(x, x[:, :1], callbacks=made)",
            True,
        ),
    ],
)
def test_callbacks_made_in_the_call_of_fit(line, works, tmp_path):
    """Python looks `fit` up before it makes them, and so before the patches."""
    done = subprocess.run(
        [sys.executable, "-c", INLINE.format(line=line)],
        capture_output=True,
        text=True,
    )
    assert ("trained" in done.stdout) == works
    assert ("in a line before the one that calls fit" in done.stderr) != works


def test_in_a_store_what_needs_a_local_folder_is_left_out(tmp_path, capsys):
    pytest.importorskip("tests.faulty_store")
    url = f"faulty://{tmp_path}/run"
    made = callbacks.default(url)
    kinds = {type(one).__name__: one for one in made}
    assert "Monitors" not in kinds and kinds["HangWatch"].path is None
    assert kinds["DeviceStats"].path == f"{url}/devices.jsonl"
    assert kinds["RunRecord"].folder == url
    line = capsys.readouterr().out
    assert f"kerasmgpu report {url}; a hang is printed only" in line
    logs = {"log_dir": tmp_path / "logs"}
    made = callbacks.default(url, monitors=logs)
    assert "Monitors" in [type(one).__name__ for one in made]
