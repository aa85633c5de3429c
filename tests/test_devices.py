"""The list of tests that say nothing on GPUs names tests that are there."""

import pathlib

import pytest

from tests.devices import NOT_ON_CARDS, NOT_ON_GPUS, why_not_on_gpus


@pytest.mark.parametrize("start", [*NOT_ON_GPUS, *NOT_ON_CARDS])
def test_each_beginning_is_one_of_a_test(start):
    path, _, name = start.partition("::")
    text = (pathlib.Path(__file__).parent / path).read_text("utf-8")
    name, bracket, _ = name.partition("[")
    assert f"\ndef {name}" + ("(" if bracket else "") in text


@pytest.mark.parametrize("as_gpus", [False, True])
def test_each_has_its_reason(monkeypatch, as_gpus):
    monkeypatch.setattr("tests.devices.AS_GPUS", as_gpus)
    for start, why in NOT_ON_GPUS.items():
        assert why_not_on_gpus(f"tests/{start}") == why
    for start, why in NOT_ON_CARDS.items():
        found = why_not_on_gpus(f"tests/{start}")
        assert found == (None if as_gpus else why)


def test_others_run():
    assert why_not_on_gpus("tests/parity/test_parity.py::test_x") is None
