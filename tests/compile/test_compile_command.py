"""Programs that are compiled ahead of a job are those of the job."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.commands import search_path
from kerasmgpu.compile import filling, one_step
from kerasmgpu.errors import InputError
from tests import console
from tests.compile import programs
from tests.engine.test_xla_cache import start

BUILD = "tests.compile.programs:build"


@pytest.mark.nightly
def test_a_job_compiles_nothing(tmp_path):
    console.put_module(programs, tmp_path)
    folder = tmp_path / "compiled"
    done = console.run(
        "compile",
        "my_module:build",
        "--replicas=2",
        "--global_batch_size=8",
        "--steps=train,predict",
        f"--output={folder}",
        "--json",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    train, predict = report["rows"]
    assert (train["step"], predict["step"]) == ("train", "predict")
    assert train["compiled"] + predict["compiled"] == report["programs"] > 1
    assert predict["global_batch_size"] == 8
    files = set(folder.glob("*/*"))
    assert report["programs"] == len(files)
    assert report["bytes"] == sum(file.stat().st_size for file in files)
    output, compiled, loaded, log = start(folder)
    assert output
    assert compiled == 0 < loaded
    assert "XLA compiles what is not in the folder" not in log
    assert set(folder.glob("*/*")) == files


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(output="new", steps=[]), "steps must be of train, test, predict"),
        (dict(output="new", replicas=0), "replicas must be an integer"),
        (
            dict(output="new", replicas=3, replicas_per_worker=2),
            "multiple of replicas_per_worker",
        ),
        (dict(output="new", global_batch_size=0), "global_batch_size must be"),
    ],
)
def test_wrong_arguments_start_nothing(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        filling.fill(BUILD, **arguments)
    assert not list(tmp_path.iterdir())


def test_the_step_of_a_mesh_is_compiled(tmp_path, monkeypatch):
    """Here TensorFlow has started, so that no program is kept."""
    monkeypatch.setattr(one_step.xla_cache, "prepare", lambda: None)
    monkeypatch.setattr(one_step.xla_cache, "keep_now", lambda: 0)
    job = {
        "build": "tests.compile.programs:on_a_mesh",
        "data": "tests.compile.programs:data",
        "search_path": search_path.for_child(),
        "folder": str(tmp_path),
        "replicas": 4,
        "workers": 1,
        "strategy": {},
        "global_batch_sizes": [8],
        "steps": ["train"],
    }
    (row,) = one_step.compile_steps(job)["rows"]
    assert (row["replicas"], row["mesh"]) == (4, {"batch": 2, "model": 2})


def batches_of(data, sizes):
    """Rows and data of each batch."""
    return [(size, make()) for size, make in one_step._batches(data, sizes)]


def test_batches_of_arrays_have_the_rows_that_are_asked_for():
    x = np.arange(6.0).reshape(3, 2)
    (size, first), (more, second) = batches_of((x, x[:, :1]), [2, 7])
    assert (size, more, first["batch_size"]) == (2, 7, 2)
    assert second["x"].shape == (7, 2) and second["y"].shape == (7, 1)
    np.testing.assert_array_equal(second["x"][3], x[0])
    ((size, arguments),) = batches_of(x, None)
    assert (size, arguments["y"]) == (32, None)


def test_batches_that_are_there_keep_their_rows():
    dataset = tf.data.Dataset.range(10).batch(4)
    assert batches_of(dataset, None) == [(4, {"x": dataset})]
    with pytest.raises(InputError, match="global_batch_size is for arrays"):
        batches_of(dataset, [4])


def test_a_generator_is_read_once_for_all_steps():
    generator = (np.full([3, 1], number) for number in range(2))
    ((rows, make),) = one_step._batches(generator, None)
    assert rows == 3
    for _ in range(2):
        np.testing.assert_array_equal(next(make()["x"]), np.zeros([3, 1]))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(jit_compile=False), "Compile it with jit_compile=True"),
        (dict(run_eagerly=True), "eager steps are not compiled"),
        (dict(), "Compile it with jit_compile=True"),
        (dict(jit_compile=True), None),
    ],
)
def test_a_model_must_have_xla(arguments, message):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **arguments)
    if message is None:
        one_step._require_xla(model)
        assert model.jit_compile
    else:
        with pytest.raises(InputError, match=message):
            one_step._require_xla(model)
