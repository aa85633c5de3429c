"""The list of tests that say nothing on GPUs names tests that are there."""

import pathlib

import pytest

from tests.devices import NOT_ON_GPUS, why_not_on_gpus


@pytest.mark.parametrize("start", NOT_ON_GPUS)
def test_each_beginning_is_one_of_a_test(start):
    path, _, name = start.partition("::")
    text = (pathlib.Path(__file__).parent / path).read_text("utf-8")
    name, bracket, _ = name.partition("[")
    assert f"\ndef {name}" + ("(" if bracket else "") in text
    assert why_not_on_gpus(f"tests/{start}") == NOT_ON_GPUS[start]


def test_others_run():
    assert why_not_on_gpus("tests/parity/test_parity.py::test_x") is None
