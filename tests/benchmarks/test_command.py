"""The command, as a user runs it."""

import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

import benchmarks
from benchmarks.figures import FIGURES

CHECKOUT = pathlib.Path(benchmarks.__file__).resolve().parents[1]


def command(*flags):
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *flags],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=CHECKOUT,
    )


@pytest.mark.parametrize(
    "module",
    [
        "__main__",
        pytest.param(
            "torch_training",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("torch") is None,
                reason="the pytorch contender needs torch",
            ),
        ),
    ],
)
def test_what_does_not_train_with_tensorflow_does_not_import_it(module):
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            f"import sys, benchmarks.{module};"
            "print({'tensorflow', 'keras', 'jax'} & set(sys.modules))",
        ],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.nightly
def test_two_contenders_for_real(tmp_path):
    done = command(
        "--workloads=convnet",
        "--contenders=one_device,kerasmgpu",
        "--replica_counts=2",
        "--rounds=1",
        "--steps=2",
        "--global_batch_size=10",
        "--virtual_devices",
        f"--output_dir={tmp_path}",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "benchmark.json").read_text())
    one, two = [run["result"] for run in report["runs"]]
    assert all(one[name] > 0 and two[name] > 0 for name in FIGURES)
    assert (one["devices"], two["devices"]) == (["CPU:0"], ["CPU:0", "CPU:1"])
    # From the same weights with the same batches, the same model.
    for loss in ("first_loss", "last_loss"):
        assert one[loss] == pytest.approx(two[loss], rel=1e-4)
    assert one["first_loss"] != one["last_loss"]
    assert report["disagreements"] == []
    # Both got through as many steps as they were timed for.
    assert 10 / one["wall_ms_per_step"] * 1000 == pytest.approx(
        one["examples_per_second"]
    )
    assert "kerasmgpu" in done.stdout and "[2/2]" in done.stdout
