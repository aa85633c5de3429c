"""Jobs whose workers each hold a part of a table end as one device does."""

import contextlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests.workers import tables_program

QUICK = ["adam-1", "sgd-2"]

SETTINGS = [
    *QUICK,
    "adam-2-jit",
    "sgd-1",
    "adagrad-1",
    "adagrad-2",
    "lion-1",
    "ftrl-1-jit",
    "sgd-1-bfloat16",
    "adam-2-bfloat16",
]


@pytest.mark.parametrize(
    "devices, settings",
    [(1, QUICK), pytest.param(2, SETTINGS, marks=pytest.mark.slow)],
    ids=["2 workers x 1", "2 workers x 2"],
)
def test_workers_follow_one_device(devices, settings, tmp_path):
    """Whether they own some, all or none of the rows that a batch wants."""
    command = [sys.executable, "-m", "kerasmgpu.launch", "--num_workers=2"]
    command += ["--", sys.executable, "-m", "tests.workers.tables_program"]
    command += [str(tmp_path), str(devices), *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    first, second = (
        pickle.loads((tmp_path / f"worker-{index}.pickle").read_bytes())
        for index in range(2)
    )
    for setting in settings:
        one = tables_program.train(contextlib.nullcontext(), setting)
        tolerance = 0.05 if setting.endswith("bfloat16") else 1e-12
        for expected, *others in zip(one, first[setting], second[setting]):
            for other in others:
                distance = np.abs(np.subtract(other, expected, dtype="float64"))
                assert distance.max() <= tolerance, setting
