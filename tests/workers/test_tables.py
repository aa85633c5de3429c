"""Jobs whose workers each hold a part of a table end as one device does."""

import contextlib

import numpy as np
import pytest

from tests.workers import tables_program

QUICK = ["adam-1"]

SETTINGS = [
    *QUICK,
    "sgd-2",
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
    "setting",
    [
        pytest.param(
            setting,
            id=f"{setting}, 2 workers x {devices}",
            marks=[
                pytest.mark.job_case(2, devices, f"tables {setting}"),
                *([] if devices == 1 else [pytest.mark.nightly]),
            ],
        )
        for devices, settings in ((1, QUICK), (2, SETTINGS))
        for setting in settings
    ],
)
def test_workers_follow_one_device(setting, job):
    """Whether they own some, all or none of the rows that a batch wants."""
    first, second = job.workers
    one = tables_program.train(contextlib.nullcontext(), setting)
    tolerance = 0.05 if setting.endswith("bfloat16") else 1e-12
    for expected, *others in zip(one, first, second):
        for other in others:
            distance = np.abs(np.subtract(other, expected, dtype="float64"))
            assert distance.max() <= tolerance
