"""The command tells strategies apart and explains only what it should."""

import re

import numpy as np
import pytest

from benchmarks.exactness.keras_own import (
    distribution,
    explanations,
    files,
)
from benchmarks.exactness.keras_own.comparison import Measure, failures_of
from benchmarks.exactness.keras_own.explanations import explanation
from benchmarks.exactness.keras_own.numbers import differences
from benchmarks.exactness.registry import Case

TRAINER = Case("keras.src.trainers.trainer_test", "trainers", None)


# `nested_inputs` feeds 3 rows, which 2 replicas can't share evenly.


@pytest.mark.slow
def test_uneven_batches_of_kerass_own_test_pass_with_ours():
    result = Measure(TRAINER, "test_nested_inputs")("kerasmgpu, 2")
    assert result == {"text": "1 of 1", "notes": [], "in_parity": True}


@pytest.mark.nightly
def test_the_same_test_fails_with_stock_and_is_not_explained():
    result = Measure(TRAINER, "test_nested_inputs")("stock, 2")
    assert result["text"] == "0 of 1" and not result["in_parity"]
    assert "NOT EXPLAINED" in result["notes"][0]


@pytest.mark.nightly
def test_a_selection_without_tests_is_told():
    assert "missing" in Measure(TRAINER, "no_such_test")("kerasmgpu, 2")


@pytest.mark.nightly
def test_what_keras_skips_unless_on_jax_runs():
    select = (
        "test_get_device_count or test_to_backend_layout or sharding_behavior"
    )
    texts = [
        distribution.Measure(Case(name, group, None), select)("kerasmgpu")
        for name, group in files.modules("distribution").items()
        if group != files.HUB
    ]
    assert [found["text"] for found in texts] == ["1 of 1", "2 of 2"]


OF_HUB = """
import keras, unittest

class Test(unittest.TestCase):
    def test_distribution(self):
        if keras.backend.backend() != "jax":
            self.skipTest("Needs the JAX backend.")
        devices = keras.distribution.list_devices("CPU")
        mesh = keras.distribution.DeviceMesh((1, 8), ("a", "b"), devices)
        layouts = keras.distribution.LayoutMap(mesh)
        layouts["d/kernel"] = (None, "b")
        distribution = keras.distribution.ModelParallel(layout_map=layouts)
        with distribution.scope():
            dense = keras.layers.Dense(5, name="d")
            dense.build((None, 2))
        self.assertEqual(tuple(dense.kernel.value.sharding.spec), (None, "b"))

    def test_other(self):
        self.fail()
"""


@pytest.mark.nightly
def test_tests_of_a_checkout_of_keras_hub_run(tmp_path):
    module = "keras_hub.src.models.gemma.gemma_backbone_test"
    case = Case(module, files.HUB, None)
    file = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True)
    file.write_text(OF_HUB)
    measure = distribution.Measure(case, checkout=tmp_path)
    assert measure("kerasmgpu")["text"] == "1 of 1"
    other = distribution.Measure(case, "test_other", tmp_path)("kerasmgpu")
    assert other["text"] == "0 of 1" and not other["in_parity"]
    assert "missing" in distribution.Measure(case)("kerasmgpu")


def test_files_are_found_by_group():
    found = files.modules("keras_own")
    assert found[TRAINER.name] == "trainers"
    assert found["keras.src.layers.rnn.lstm_test"] == "rnn"


def test_a_test_must_do_as_on_one_device():
    one = (
        dict.fromkeys(["same", "other", "fails", "lost", "skips"], "passed"),
        {},
        {name: calls(1.0) for name in ("same", "other", "fails", "lost")},
    )
    many = (
        {
            "same": "passed",
            "other": "passed",
            "fails": "failed",
            "skips": "skipped",
        },
        {"fails": "AssertionError"},
        {"same": calls(1.0), "other": calls(2.0)},
    )
    failures = failures_of(one, many)
    assert list(failures) == ["other", "fails", "lost", "skips"]
    assert failures["fails"] == "AssertionError"
    assert failures["lost"] == "not run" and failures["skips"] == "skipped"


def test_what_fails_on_one_device_too_is_no_failure():
    results = ({"needs_a_package": "failed"}, {"needs_a_package": "E"}, {})
    assert failures_of(results, results) == {}


def test_rounding_is_no_difference_but_other_numbers_are():
    assert differences(calls(1.0), calls(1.0 + 1e-6)) == []
    (words,) = differences(calls(1.0), calls(1.001))
    assert words.startswith("call 1, fit, variables: array 0 is float32[2]")
    assert differences(calls(100.0), calls(100.001)) == []


def test_integers_and_shapes_must_be_the_same():
    assert differences(calls(1, "int32"), calls(2, "int32"))
    assert differences(calls(1, "int32"), calls(1, "int64"))
    assert differences(calls(1.0), calls(1.0)[:0])


def calls(value, dtype="float32"):
    array = np.full([2], value, dtype)
    return [
        {"method": "fit", "returned": [], "variables": [array], "optimizer": []}
    ]


def test_a_cause_explains_only_the_error_that_it_names(monkeypatch):
    causes = {("trainers.trainer_test", "T::t"): (r"Other numbers:.*1", "why")}
    monkeypatch.setattr(explanations, "CAUSES", causes)
    assert explanation(TRAINER.name, "T::t", "Other numbers:\ncall 1") == "why"
    assert (
        explanation(TRAINER.name, "T::t", "AssertionError: 1.0 != 2.0") is None
    )
    assert (
        explanation(TRAINER.name, "T::other", "Other numbers:\ncall 1") is None
    )


def test_only_counts_of_steps_are_explained_by_the_end_of_the_data():
    pattern, _ = explanations.STEP_WITHOUT_DATA
    count = "\ncall 2, fit, optimizer: array 0 is int64[] [21] on …"
    weight = "\ncall 2, fit, optimizer: array 1 is float32[2] [1.,2.] on …"
    assert re.fullmatch(pattern, f"Other numbers:{count}{count}")
    assert not re.fullmatch(pattern, f"Other numbers:{count}{weight}")
    assert not re.fullmatch(pattern, f"Other numbers:{weight}{count}")
