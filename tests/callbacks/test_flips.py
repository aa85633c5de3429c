"""A bit or an element flips on a device, in a step that Audit compares."""

import itertools

import keras
import numpy as np
import pytest
from keras import layers

from kerasmgpu.callbacks import Audit, audit, audit_verdict
from kerasmgpu.callbacks.step_audit import StepAudit
from tests.callbacks import flips
from tests.parity.meshes import both_divided

SETTINGS = {
    "whole": {},
    "weights": {"shard": "weights", "min_shard_bytes": 0},
    "micro": {"micro_batches": 2},
    "offload": {
        "shard": "optimizer",
        "min_shard_bytes": 0,
        "offload": "optimizer",
    },
    "mesh": None,
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(audit, "FIRST", 1)


def built(like_gpus, settings):
    keras.utils.set_random_seed(1)
    scope = (
        both_divided((2, 2)).scope()
        if settings is None
        else like_gpus(2, **settings).scope()
    )
    with scope:
        model = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(8, "relu", name="first"),
                layers.Dense(8, "tanh", name="second"),
                layers.Dense(1, name="third"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        model.optimizer.build(model.trainable_variables)
    return model


def verdict(model, monkeypatch, site, kind, once=True):
    """The verdict, and the line, on a step in which a device fails."""
    called, planted = StepAudit.__call__, []

    def failing(self, program, written, run, tensors):
        other = flips.flipped(written, site, kind)
        planted.append(other)
        runs = itertools.count()

        def fails(tensors):
            is_sound = other is None or once and next(runs)
            return run(tensors) if is_sound else other(tensors)

        return called(self, program, written, fails, tensors)

    found = Audit()
    x = np.random.default_rng(0).normal(size=(12, 6)).astype("float32")
    variables = [*model.variables, *model.optimizer.variables]
    before = [np.array(one) for one in variables]
    with monkeypatch.context() as patched:
        patched.setattr(StepAudit, "__call__", failing)
        model.fit(x, x[:, :1], batch_size=12, verbose=0, callbacks=[found])
    for one, array in zip(variables, before):
        one.assign(array)
    (finding,) = found.findings
    return planted[0] is not None, finding[1]


def check(like_gpus, monkeypatch, setting, cases, once, expected):
    model = built(like_gpus, SETTINGS[setting])
    found = {case: verdict(model, monkeypatch, *case, once) for case in cases}
    for case, (is_there, said) in found.items():
        assert is_there and said in expected, (case, said)
    # A sound step of the same model is equal all the same.
    assert verdict(model, monkeypatch, "none", "bit")[1] in (
        audit_verdict.EQUAL,
        audit_verdict.ROUNDING,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting, kinds",
    [
        # A bit at one site, an element at the next.
        ("whole", None),
        *(
            (one, flips.KINDS)
            for one in ("whole", "weights", "micro", "offload", "mesh")
        ),
    ],
)
def test_a_flip_is_found_and_blamed_on_a_device(
    like_gpus, monkeypatch, setting, kinds
):
    cases = (
        list(zip(flips.SITES, itertools.cycle(flips.KINDS)))
        if kinds is None
        else list(itertools.product(flips.SITES, kinds))
    )
    expected = {audit_verdict.ONCE, audit_verdict.COPIES}
    check(like_gpus, monkeypatch, setting, cases, True, expected)


@pytest.mark.slow
def test_what_differs_each_time_is_blamed_on_the_program(
    like_gpus, monkeypatch
):
    cases = [("activation", "bit"), ("gradient", "element")]
    expected = {audit_verdict.OURS}
    check(like_gpus, monkeypatch, "whole", cases, False, expected)
