"""A step's CPU time is divided by what the profiler has recorded."""

import pytest

from benchmarks.host_share import shares
from benchmarks.host_share.__main__ import run


def test_parts_are_sums_of_medians():
    """Two steps; another program held up one of the four products."""
    product = "replica_0/MatMul:_MklMatMul"
    threads = {
        "pool": [
            (0.000, 0.040, "ExecutorState::Process#id=1#"),
            (0.001, 0.004, product),
            (0.010, 0.004, product),
            (0.020, 0.009, product),
            (0.030, 0.004, product),
            (0.035, 0.002, "AddN:AddN"),
            (0.050, 0.006, "thunks::Run"),
            (0.051, 0.003, "fusion.1"),
            (0.060, 0.001, "edge_5:_Send"),
        ],
        "data": [
            (0.0, 0.002, "Iterator::Root"),
            (0.0005, 0.001, "Iterator::Root::Prefetch"),
        ],
    }
    made = shares.divide(20.0, 1.5, threads, 2)
    assert made == pytest.approx(
        {
            "kernels": 4 * 4 / 2 + 3 / 2,
            "sums": 1.0,
            "slices": 0.0,
            "copies": 0.5,
            "input": 1.0,
            "Python": 1.5,
            "executor": 20 - 8 - 1.5 - 1 - 0.5 - 1 - 1.5,
        }
    )
    row = dict(workload="w", contender="c", replicas=4, cpu=20.0, parts=made)
    table = shares.markdown([row]).splitlines()
    assert table[0].startswith("| workload | contender | replicas | CPU")
    assert table[2].startswith("| w | c | 4 | 20.0 | 9.5 | 1.0 | 0.0 | 0.5 |")
    slowed = dict(row, parts={**made, "executor": -1.0})
    cells = shares.markdown([slowed]).splitlines()[2].split(" | ")
    assert (cells[4], cells[5], cells[-1]) == ("nan", "1.0", "nan |")


@pytest.mark.nightly
def test_a_training_is_profiled():
    (row,) = run(["deep_narrow"], ["kerasmgpu"], [2], 10)
    parts = row["parts"]
    assert tuple(parts) == shares.PARTS
    assert sum(parts.values()) == pytest.approx(row["cpu"])
    assert all(parts[name] > 0 for name in ("kernels", "Python", "input"))
    assert max(parts.values()) < row["cpu"]
