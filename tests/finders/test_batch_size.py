"""Sizes of real runs that fail, each in its own way."""

import math
import signal
import subprocess

import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks import throughput
from kerasmgpu.errors import InputError
from kerasmgpu.finders import batch_size_measuring, batch_size_report
from tests import console
from tests.commands.process_watch import is_gone, wait_for
from tests.finders import programs

PROGRAMS = "tests.finders.programs"


def find(name, **arguments):
    return kerasmgpu.find_batch_size(
        f"{PROGRAMS}:{name}", **{"seconds": 0.1, "show": False, **arguments}
    )


@pytest.mark.nightly
def test_two_replicas_run_out_of_memory(capsys, tmp_path):
    plot = tmp_path / "plot.png"
    found = find("runs_out", virtual_devices=2, low=100, show=True, plot=plot)
    assert (found.largest, found.num_replicas) == (100, 2)
    assert found.stopped_by == "failed"
    rows = {row["global_batch_size"]: row for row in found.table}
    assert list(rows) == [100, 200]
    assert rows[100]["rows_per_replica"] == 50
    assert rows[100]["error"] is None
    speed = rows[100]["examples_per_second"]
    assert speed > 0 and rows[100]["step_seconds"] == 100 / speed
    assert rows[200]["error"] == "out of memory"
    assert rows[200]["examples_per_second"] is None
    shown = capsys.readouterr().out
    assert shown.startswith("measuring ")
    assert "global batch 200: out of memory" in shown
    assert "largest: 100 (larger ones fail); recommended: " in shown
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_rows_are_divided_along_one_axis_of_a_mesh(tmp_path, capsys):
    """Measured in this process, which starts TensorFlow once."""
    job = {
        "build": f"{PROGRAMS}:on_a_mesh",
        "data": None,
        "folder": str(tmp_path),
        "seconds": 0.01,
        "strategy": {
            "num_replicas": 4,
            "virtual_devices": None,
            "shard": None,
            "micro_batches": 1,
        },
        "limits": {"low": 7, "high": 7},
    }
    batch_size_measuring._measure_all(job)
    facts, measured = batch_size_measuring.read(
        tmp_path / batch_size_measuring.FILE
    )
    found = batch_size_report.result(facts, measured, 0.9)
    assert found.num_replicas == 4
    assert [row["rows_per_replica"] for row in found.table] == [4]
    batch_size_report.show(found, facts, 0.9)
    assert "mesh batch=2, model=2" in " ".join(capsys.readouterr().out.split())


def test_a_second_epoch_that_compiles_leaves_one_to_measure(monkeypatch):
    def speed(*_, epochs, **__):
        return 100.0 if epochs > 2 else math.nan  # Two have compiled.

    monkeypatch.setattr(throughput, "median_speed", speed)
    rows = tf.data.Dataset.range(8)
    model = programs.sound()
    assert batch_size_measuring._examples_per_second(model, rows, 8, 1) == 100


@pytest.mark.slow
def test_a_size_fails_only_in_a_process_of_its_own():
    """And a process that is killed does not end the search."""
    settings = dict(low=100, precision=1, stop_when_flat=False)
    found = find("is_killed", num_replicas=1, **settings)
    assert found.largest == 200
    rows = {row["global_batch_size"]: row["error"] for row in found.table}
    assert list(rows) == [100, 200, 400]
    assert rows[100] is rows[200] is None
    assert rows[400].startswith("killed (SIGKILL)")


@pytest.mark.nightly
def test_tensorflow_runs_out_of_memory():
    found = find("limited_memory", low=16, precision=1, stop_when_flat=False)
    assert found.stopped_by == "failed"
    # 8 MB a row at least, of 1 GiB.
    assert 16 <= found.largest <= 128
    errors = [row["error"] for row in found.table if row["error"]]
    assert any("out of memory" in e or "bad_alloc" in e for e in errors)


@pytest.mark.nightly
def test_the_data_end_the_search():
    found = find("sound", data=f"{PROGRAMS}:batches", stop_when_flat=False)
    # Batches of 20 rows, two of them: more rows than there are.
    assert (found.largest, found.stopped_by) == (40, "high")
    found = find("sound", low=600, stop_when_flat=False)
    assert [row["global_batch_size"] for row in found.table] == [600, 1000]


@pytest.mark.nightly
def test_what_does_not_train_at_all():
    with pytest.raises(InputError, match="one row does not train: out of mem"):
        find("not_even_one", low=1)
    with pytest.raises(InputError, match="programs:broken raised ValueError"):
        find("broken")


@pytest.mark.slow
def test_a_size_that_takes_too_long_has_failed(tmp_path, monkeypatch):
    monkeypatch.setenv("WAITS", str(tmp_path / "process"))
    with pytest.raises(InputError, match="waits: took more than 40 s"):
        # TensorFlow alone takes 20 seconds to start on a busy machine.
        find("waits", timeout_seconds=40)
    assert is_gone(int((tmp_path / "process").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_process(tmp_path, number):
    console.put_module(programs, tmp_path)
    file = tmp_path / "process"
    parent = subprocess.Popen(
        console.command("find_batch_size", "my_module:waits"),
        cwd=tmp_path,
        env=console.environment(WAITS=str(file)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(file.exists, seconds=60)
    parent.send_signal(number)
    parent.communicate(timeout=30)
    assert parent.returncode == {2: 130, 15: 143}[number]
    wait_for(lambda: is_gone(int(file.read_text())))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(high=4), "high must be at least low. Received: low=8, high=4"),
        (dict(precision=-1), "precision must be a finite number of at least 0"),
        (dict(seconds=0), "seconds must be a finite number above 0"),
        (dict(micro_batches=0), "micro_batches must be an integer"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        find("sound", **arguments)


def test_a_job_of_several_workers_is_refused(monkeypatch):
    config = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"index": 0, '
    monkeypatch.setenv("TF_CONFIG", config + '"type": "worker"}}')
    with pytest.raises(InputError, match="run it on one of them, outside"):
        find("sound")
