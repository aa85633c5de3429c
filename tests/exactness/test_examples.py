"""A few programs after keras.io's examples and after bug reports.

`python -m benchmarks.exactness --table=keras_io` (and `reports`) has all.
"""

import keras
import pytest

from benchmarks.exactness.comparison import Measure, compared
from benchmarks.exactness.keras_io import run
from benchmarks.exactness.registry import cases
from tests.docs import pages

CASES = cases("keras_io") | cases("reports")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.in_suite]
)
def test_replicas_end_as_one_device(name):
    measure = Measure(CASES[name])
    for variant in ("kerasmgpu, 3", "as GPUs, 3"):
        assert measure(variant)["in_parity"], measure(variant)


@pytest.mark.slow
def test_another_result_is_told_apart():
    case = CASES["own train step"]
    one, other = run.outcome(case), run.outcome(case)
    assert keras.config.floatx() == "float32"  # As it was before.
    assert compared(one, other, case)["in_parity"]
    other.weights[0][0, 0] += 1e-6
    worse = compared(one, other, case)
    assert not worse["in_parity"] and worse["what"] == "weights"


def test_the_page_has_all_programs():
    page = (pages.ROOT / "docs/examples.md").read_text("utf-8")
    for case in CASES.values():
        assert f"| {case.title} |" in page
