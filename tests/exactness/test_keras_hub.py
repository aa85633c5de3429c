"""Some of KerasHub's families."""

import importlib.util

import pytest

from benchmarks.exactness.keras_hub.settings import Measure
from benchmarks.exactness.registry import cases


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
    measure = Measure(cases("keras_hub")[name])
    for setting in chosen:
        assert measure(setting).get("in_parity"), (setting, measure(setting))
