"""Goldens: a planted change of one number is found, and named by its path."""

from unittest import mock

import pytest

from kerasmgpu.memory import state_bytes
from tests import goldens
from tests.prove import tables

NAME = "triplets"


def test_differences_are_named_by_their_paths():
    before = {"a": [{"b": 1, "c": None}, 2], "d": 0.5}
    after = {"a": [{"b": 3, "c": None}], "d": 0.5, "e": "new"}
    assert list(goldens.differences(before, before)) == []
    assert list(goldens.differences(before, after)) == [
        "/a/0/b: 1 -> 3",
        "/a/1: 2 -> missing",
        "/e: missing -> new",
    ]


def test_a_planted_change_of_one_number_is_found(capsys):
    step = tables.traced(tables.programs("models")[NAME])

    def reports():
        return goldens.memory(step, **goldens.SETTINGS["weights"])

    before = reports()
    assert goldens.compared(before, reports()) == 0
    of_part = state_bytes.elements_of_part
    with mock.patch.object(
        state_bytes, "elements_of_part", lambda *given: of_part(*given) + 1
    ):
        assert goldens.compared(before, reports()) == 1
    printed = capsys.readouterr().out
    weights = before["rows"][0]["weights"]
    assert f"/rows/0/weights: {weights} -> " in printed
    assert "/parameters" not in printed


def test_without_stored_reports_it_says_so(tmp_path, capsys):
    with pytest.raises(SystemExit):
        goldens.main([f"--folder={tmp_path}"])
    assert "--store" in capsys.readouterr().err
