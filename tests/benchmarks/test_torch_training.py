"""`DistributedDataParallel` in its processes, well and badly."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import benchmarks
from benchmarks.figures import FIGURES
from kerasmgpu.commands import child_processes
from kerasmgpu.errors import InputError
from tests.commands.process_watch import is_gone, wait_for

torch = pytest.importorskip("torch", reason="the pytorch contender needs it")

CHECKOUT = str(pathlib.Path(benchmarks.__file__).resolve().parents[1])
# Its ranks import it too, so what it changes is changed in each of them.
FAULTY = """
import dataclasses, os, pathlib, signal, sys, time
from torch import distributed
from benchmarks import child
from benchmarks.torch_models import TORCH_MODELS
from kerasmgpu.commands import child_processes

folder = pathlib.Path(sys.argv[1])
fault = (folder / "fault").read_text()
convnet = TORCH_MODELS["convnet"]

def optimizer(parameters):
    rank = distributed.get_rank()
    (folder / f"rank-{rank}.new").write_text(str(os.getpid()))
    os.replace(folder / f"rank-{rank}.new", folder / f"rank-{rank}")
    if rank == 1 and fault == "error":
        raise RuntimeError("no more memory on rank 1")
    if rank == 1 and fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 1 and fault == "hang":
        time.sleep(600)
    return convnet.optimizer(parameters)

if fault == "hang":
    # As in the background of a shell, so PyTorch's own signal does nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
TORCH_MODELS["convnet"] = dataclasses.replace(convnet, optimizer=optimizer)
if __name__ == "__main__":
    child_processes.do_job(child.main)
"""
JOB = {
    "workload": "convnet",
    "contender": "pytorch",
    "replicas": 2,
    "global_batch_size": 4,
    "steps": 1,
    "virtual_devices": True,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A run's folder, and the module `faulty` for its process."""
    (tmp_path / "faulty.py").write_text(FAULTY)
    paths = [str(tmp_path), CHECKOUT, os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    return tmp_path


def ranks(folder):
    return [int((folder / f"rank-{rank}").read_text()) for rank in (0, 1)]


def test_the_model_is_that_of_one_device(tmp_path):
    # Of 2 rows, 3 replicas get 0, 1 and 1.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks"),
            "--workloads=embeddings",
            "--contenders=one_device,pytorch",
            "--replica_counts=3",
            "--rounds=1",
            "--steps=2",
            "--global_batch_size=2",
            "--virtual_devices",
            f"--output_dir={tmp_path}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=CHECKOUT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "benchmark.json").read_text())
    one, three = [run["result"] for run in report["runs"]]
    assert all(three[name] > 0 for name in FIGURES)
    assert three["parameters"] == one["parameters"]
    assert three["devices"] == ["cpu"] * 3
    # Three processes that have each imported PyTorch.
    assert three["peak_memory_mb"] > 3 * 150
    for loss in ("first_loss", "last_loss"):
        assert three[loss] == pytest.approx(one[loss], rel=1e-4)
    assert one["first_loss"] != one["last_loss"]
    assert report["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    "fault, message",
    [
        ("error", "no more memory on rank 1"),
        ("kill", "process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_lost_replica_ends_the_run(folder, fault, message):
    (folder / "fault").write_text(fault)
    # Far less than the 30 minutes for which its peers would wait.
    with pytest.raises(InputError, match=message):
        child_processes.run_job("faulty", JOB, folder, 60)
    for process_id in ranks(folder):
        wait_for(functools.partial(is_gone, process_id), seconds=10)


def test_replicas_end_with_the_benchmark(folder):
    (folder / "fault").write_text("hang")
    code = (
        "import pathlib; from kerasmgpu.commands import child_processes;"
        f"child_processes.run_job('faulty', {JOB!r}, "
        f"pathlib.Path({str(folder)!r}), 600)"
    )
    benchmark = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL
    )
    for rank in ("rank-0", "rank-1"):  # Three processes import PyTorch first.
        wait_for((folder / rank).exists, seconds=120)
    benchmark.send_signal(signal.SIGKILL)
    benchmark.wait(30)
    for process_id in ranks(folder):
        wait_for(functools.partial(is_gone, process_id), seconds=10)


def test_fewer_gpus_than_replicas_is_told(monkeypatch):
    from benchmarks import torch_training

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(InputError, match="sees 1 of the 2 GPUs asked for"):
        torch_training.train({**JOB, "virtual_devices": False})
