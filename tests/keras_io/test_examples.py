"""A few programs after keras.io's examples; `python -m tests.keras_io` has all.

Also what the command does with programs that fail, hang or end their process.
"""

import os
import time

import keras
import pytest

from tests.docs import pages
from tests.keras_io import comparison, processes, registry, table
from tests.keras_io.all import EXAMPLES

SOME = [example for example in EXAMPLES.values() if example.in_suite]


@pytest.mark.slow
@pytest.mark.parametrize("example", SOME, ids=lambda example: example.name)
def test_replicas_end_as_one_device(example):
    told, variants = [], [("kerasmgpu", 3), comparison.AS_GPUS]
    comparison.records(example.name, variants, told.append)
    ends = {one["ends"]: one for one in told if "ends" in one}
    assert {comparison.ONE_DEVICE, *variants} == set(ends)
    assert all(ends[variant].get("in_parity") for variant in variants), ends


@pytest.mark.slow
def test_another_result_is_told_apart():
    one, other = (
        registry.outcome(EXAMPLES["own train step"]) for _ in range(2)
    )
    assert keras.config.floatx() == "float32"  # As it was before.
    assert comparison.compared(one, other, 1e-7)["in_parity"]
    other.weights[0][0, 0] += 1e-6
    worse = comparison.compared(one, other, 1e-7)
    assert not worse["in_parity"] and worse["what"] == "weights"
    assert "**" in table.verdict(worse)


def test_the_page_has_all_programs():
    page = (pages.ROOT / "docs/examples.md").read_text("utf-8")
    for example in EXAMPLES.values():
        assert f"| {example.title} |" in page


@pytest.mark.slow
def test_processes_that_end_or_hang_are_rows():
    def records(name, variants, tell):
        for variant in list(variants):
            if (name, variant) == ("ends", "b"):
                os._exit(3)
            if (name, variant) == ("hangs", "b"):
                time.sleep(600)
            tell({"ends": variant, "distance": 0.0})

    told = {}
    processes.run_all(
        records,
        {name: list("abc") for name in ("ends", "hangs", "works")},
        jobs=2,
        timeout_seconds=3.0,
        tell=lambda name, variant, result: told.update(
            {name + variant: result}
        ),
    )
    assert told["endsb"] == {"error": "the process ended with status 3"}
    assert told["hangsb"] == {"error": "timed out"}
    others = {key: r for key, r in told.items() if key[-1] != "b"}
    assert len(others) == 6 and told["worksb"] == {"distance": 0.0}
    assert all(r == {"distance": 0.0} for r in others.values())
