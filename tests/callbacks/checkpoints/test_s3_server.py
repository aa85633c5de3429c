"""Checkpoints, records and commands with an S3 server; skipped without moto."""

import json
import multiprocessing
import random
import time

import numpy as np
import pytest

pytest.importorskip("moto")
pytest.importorskip("s3fs")

import kerasmgpu
from kerasmgpu.callbacks.checkpoints import stored
from kerasmgpu.callbacks.checkpoints.folder import file_name
from kerasmgpu.callbacks.checkpoints.store_folder import StoreFolder
from kerasmgpu.commands import checkpoint_reports
from kerasmgpu.errors import InputError
from kerasmgpu.report import run_files
from kerasmgpu.stores.store_path import StorePath
from tests import s3_server
from tests.callbacks.checkpoints import runs, test_stored
from tests.callbacks.checkpoints.test_store_folder import newest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def proxy():
    with s3_server.running() as proxy:
        yield proxy


@pytest.fixture
def place(proxy, request):
    proxy.broken = proxy.slow = 0.0
    yield StorePath(f"s3://{s3_server.BUCKET}/{request.node.name}")
    proxy.broken = proxy.slow = 0.0


def save(place, number, is_sharded, committed):
    """Saves a checkpoint whose arrays are multiples of its number."""
    folder = StoreFolder(place, keep=2)
    values = [value * number for value in test_stored.VALUES]
    if is_sharded:
        test_stored.save(folder, number, values)
    else:
        shapes = [{"shape": list(value.shape)} for value in values]
        name = file_name(number, 0)
        folder.write(name, {"variables": shapes}, values)
    committed.value = number


def test_100_checkpoints_with_faults_at_random_moments(place, proxy):
    """Files and folders in turns; a third of the saves are killed."""
    context, chance = multiprocessing.get_context("fork"), random.Random(7)
    committed = context.Value("i", 0)
    StoreFolder(place, keep=2).prepare()
    killed = lost = 0
    proxy.broken = proxy.slow = 0.02
    for number in range(1, 101):
        is_sharded = number % 2 == 0
        process = context.Process(
            target=save, args=(place, number, is_sharded, committed)
        )
        process.start()
        if number % 3 == 0:
            time.sleep(chance.uniform(0.05, 0.8))
            killed += process.is_alive()
            process.kill()
        process.join()
        found = newest(StoreFolder(place, keep=2))
        got = 0 if found is None else int(found.name.split("-")[1])
        # A save may be killed between its commit and the note of it.
        assert got in (committed.value, number)
        lost += got != number
        if found is None:
            continue
        committed.value = got
        with stored.Stored(found.path) as checkpoint:
            for index, value in enumerate(test_stored.VALUES):
                array = checkpoint.array(index)[...]
                np.testing.assert_array_equal(array, value * got)
    print(f"{killed} killed, {lost} lost, {proxy.num_broken} broken")
    assert killed > 10 and lost > 0 and proxy.num_broken > 20


def test_a_run_its_record_and_the_commands(place, capsys, tmp_path):
    def build():
        return runs.build_eager()

    whole = build()
    expected = runs.train(whole, runs.arrays())
    directory = f"{place}/checkpoints"
    record = kerasmgpu.callbacks.RunRecord(str(place))
    runs.train(
        build(),
        runs.arrays(),
        directory,
        (1, 5),
        every_steps=2,
        callbacks=[record],
    )
    model = build()
    history = runs.train(
        model, runs.arrays(), directory, every_steps=2, callbacks=[record]
    )
    runs.require_same(model, history, whole, expected)
    (run,) = run_files.read([str(place)])
    assert [one["epoch"] for one in run.history] == [1, 2, 3]
    assert run.facts["epochs"] == 3 and not run.problems
    capsys.readouterr()
    shown = checkpoint_reports.show(directory, as_json=True)
    assert json.loads(capsys.readouterr().out) == shown
    assert shown["checkpoint"].startswith(f"{directory}/checkpoint-000003")
    assert checkpoint_reports.verify(directory)
    checkpoint_reports.convert(directory, f"{place}/one.npz")
    checkpoint_reports.convert(f"{place}/one.npz", f"{place}/folder")
    checkpoint_reports.convert(
        f"{place}/folder", str(tmp_path / "w.weights.h5")
    )
    other = build()
    other.load_weights(tmp_path / "w.weights.h5")
    for one, same in zip(runs.state(other), runs.state(model), strict=True):
        np.testing.assert_array_equal(one, same)


def test_a_bucket_that_is_not_there(place):
    with pytest.raises(InputError, match="can't be written.*no-bucket"):
        runs.train(runs.build_eager(), runs.arrays(), "s3://no-bucket/run")
