"""Two of KerasHub's families; `python -m tests.keras_hub` has all."""

import importlib.util

import pytest

from tests.docs import pages
from tests.keras_hub import settings, table
from tests.keras_hub.all import FAMILIES


def test_the_page_has_known_families():
    text = (pages.ROOT / "docs/keras_hub.md").read_text("utf-8")
    found = table.names(text)
    assert found <= set(FAMILIES) and len(found) >= 30


def test_what_is_not_in_parity_is_bold():
    close = {"distance": 1e-9, "copies_differ": False, "in_parity": True}
    assert table.cell(close) == "1e-09"
    apart = {**close, "distance": 0.1, "nudged": 1e-9, "in_parity": False}
    assert table.cell(apart) == "**1e-01 (1e-09)**"
    assert table.cell({"error": "ValueError"}) == "**ValueError**"
    continued = {**close, "tokens_differ": True, "in_parity": False}
    assert table.cell(continued) == "**1e-09, tokens differ**"
    tokens = {"same": {"tf": True, "xla": False}, "in_parity": False}
    assert table.cell(tokens) == "**differs (xla)**"


@pytest.mark.nightly
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("keras_hub", "keras_rs"))),
    reason="keras-hub or keras-rs is not installed",
)
@pytest.mark.parametrize(
    "name, chosen",
    [
        ("bert", ["plain", "weights"]),
        ("gpt2", ["plain", "weights", "mesh"]),
        ("gemma", ["mesh"]),
        ("llama", ["mesh"]),
    ],
)
def test_replicas_end_as_one_device(name, chosen):
    told = []
    settings.records(name, chosen, told.append)
    ends = [result for result in told if "ends" in result]
    assert all(result.get("in_parity") for result in ends), ends
