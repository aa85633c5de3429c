"""The script tells strategies apart and explains only what it should."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.keras_trainer.explanations import explanation

REPOSITORY = Path(__file__).parents[2]


def rerun(strategy, select):
    """Runs the script on selected tests; `(exit status, printed text)`."""
    command = [sys.executable, "-m", "tests.keras_trainer"]
    done = subprocess.run(
        [*command, f"--strategy={strategy}", f"--select={select}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout


# `nested_inputs` feeds 3 rows, which 2 replicas can't share evenly.


def test_uneven_batches_of_kerass_own_test_pass_with_ours():
    status, printed = rerun("ours", "test_nested_inputs")
    assert "strategy=ours: 1 passed, 0 failed" in printed
    assert status == 0


def test_the_same_test_fails_with_stock_and_is_not_explained():
    status, printed = rerun("stock", "test_nested_inputs")
    assert "strategy=stock: 0 passed, 1 failed (0 explained)" in printed
    assert "NOT EXPLAINED" in printed
    assert status == 1


def test_a_selection_without_tests_is_a_failure():
    status, printed = rerun("none", "no_such_test")
    assert "0 run" in printed
    assert status == 1


@pytest.mark.parametrize(
    "error, explained",
    [
        ("ModuleNotFoundError: No module named 'grain'", True),
        ("AssertionError: 1.0 != 2.0", False),
    ],
)
def test_only_a_missing_package_explains_a_test_that_needs_it(error, explained):
    cause = explanation("test_fit_with_data_adapter_grain_dataset", error)
    assert (cause is not None) == explained
