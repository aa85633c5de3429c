"""Whom a difference is put down to, with runs that are made up."""

import numpy as np
import pytest

from kerasmgpu.callbacks import audit_verdict
from kerasmgpu.callbacks.audit_verdict import Runs, Variable, finding

KERNEL = Variable("dense", "trainable", "model/dense/kernel", False)
MOMENTUM = Variable("dense", "slot momentum", "sgd/dense_momentum", True)
TOTAL = Variable("outside of layers", "metric total", "mae/total", True)
DEVICES = ["/device:GPU:0", "/device:GPU:1", "/device:GPU:2"]


def runs(ours, on=lambda device: 1.0, nudged=1.0, kinds=(KERNEL,), **others):
    """Each variable goes from 0 to 1 in the step, but for what is given."""

    def array(value):
        return [np.full(2, value) for _ in kinds]

    given = {
        "start": array(0.0),
        "ours": array(ours),
        "variables": list(kinds),
        "dtype": "float32",
        "devices": DEVICES,
        "on": lambda device: array(on(device)),
        "nudged": lambda number: array(nudged),
    }
    return Runs(**{**given, **others})


def differing(values):
    """Function of a device that returns its values one after the other."""
    left = {name: list(each) for name, each in values.items()}

    def on(device):
        mine = left.get(device[-1], [1.0])
        return mine.pop(0) if len(mine) > 1 else mine[0]

    return on


def test_the_tolerance_is_that_of_verify():
    assert finding(runs(1 + 0.9e-5)).verdict == audit_verdict.EQUAL
    assert finding(runs(1 + 1.1e-5)).verdict == audit_verdict.OURS


def test_a_hundred_times_what_a_nudge_does_is_rounding():
    found = finding(runs(1 + 0.9e-2, nudged=1 + 1e-4))
    assert found.verdict == audit_verdict.ROUNDING
    assert found.by_layer == {"dense": pytest.approx(0.9e-2)}
    far = finding(runs(1 + 1.1e-2, nudged=1 + 1e-4))
    assert far.verdict == audit_verdict.OURS


def test_a_fault_names_the_layer_and_how_far_it_is_off():
    found = finding(runs(1.5, kinds=(KERNEL, MOMENTUM)))
    assert found.verdict == audit_verdict.OURS
    assert "layer 'dense' (model/dense/kernel: 5.0e-01 of its" in found.text
    assert "GPU:0, GPU:1 and GPU:2 agree" in found.text
    assert not found.is_equal


@pytest.mark.parametrize("ours", [0.5, 1.0])
def test_a_momentum_and_a_metric_are_compared_by_their_size(ours):
    found = finding(runs(ours, kinds=(MOMENTUM, TOTAL)))
    assert found.is_equal == (ours == 1.0)


@pytest.mark.parametrize(
    "values, verdict, text",
    [
        (
            {"0": [2.0]},
            audit_verdict.DEVICE,
            "GPU:0 differs from GPU:1 and GPU",
        ),
        ({"0": [2.0, 1.0]}, audit_verdict.KERNEL, "GPU:0 gives another result"),
        (
            {"1": [2.0], "2": [3.0], "0": [0.5]},
            audit_verdict.DEVICE,
            "GPU:1 and GPU:2 differ from GPU:0",
        ),
    ],
)
def test_one_device_that_differs(values, verdict, text):
    found = finding(runs(1.0, differing(values), nudged=values["0"][-1]))
    assert found.verdict == verdict
    assert text in found.text


def test_another_device_that_differs_once():
    found = finding(runs(1.5, differing({"2": [2.0, 1.0]})))
    assert found.verdict == audit_verdict.KERNEL
    assert "GPU:2 differed in layer 'dense'" in found.text
    assert "and not when run again" in found.text


def test_of_two_devices_none_is_accused():
    found = finding(runs(1.5, differing({"1": [2.0]}), devices=DEVICES[:2]))
    assert found.verdict == audit_verdict.DEVICE
    assert "GPU:0 and GPU:1 differ from each other" in found.text
    assert "one of them is likely broken" in found.text


def test_what_a_device_does_by_itself_is_rounding():
    """As with atomic additions: the same kernel sums in another order."""
    on = differing({"0": [1.0, 1 + 0.9e-5]})
    assert finding(runs(1 + 8e-4, on)).verdict == audit_verdict.ROUNDING
    on = differing({"0": [1.0, 1 + 0.9e-5]})
    assert finding(runs(1 + 2e-3, on)).verdict == audit_verdict.OURS


def test_noise_that_no_rounding_makes_is_not_deterministic():
    """Each run is another one, and so is that after a nudge."""
    on = differing({"0": [1.0, 1.1]})
    assert finding(runs(1.5, on, 1.2)).verdict == audit_verdict.KERNEL
    # Of Adam's updates that of a gradient of nearly 0 may be of any size.
    kinds = (KERNEL, MOMENTUM)
    of_adam = runs(1.5, on, kinds=kinds)
    of_adam.on = lambda device: [np.full(2, on(device)), np.ones(2)]
    of_adam.ours = [np.full(2, 1.5), np.ones(2)]
    assert finding(of_adam).verdict == audit_verdict.ROUNDING


def test_other_bits_on_a_device_are_named_in_any_case():
    copies = [(0, [np.ones(2), np.ones(2), np.array([1, 1 + 1e-15])])]
    found = finding(runs(1.0, copies=copies))
    assert found.verdict == audit_verdict.COPIES
    assert "on GPU:2 has other bits than on GPU:0 and GPU:1" in found.text


def test_the_worst_verdict():
    verdicts = [audit_verdict.ROUNDING, audit_verdict.OURS, audit_verdict.EQUAL]
    assert audit_verdict.worst(verdicts) == audit_verdict.OURS
    assert audit_verdict.worst([]) == audit_verdict.NOT_RUN
