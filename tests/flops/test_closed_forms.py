"""Counted operations are those of closed forms."""

import pytest

from kerasmgpu.commands.traced_step import trace_step
from kerasmgpu.flops.counting import count
from tests.flops import closed_forms

ROWS = closed_forms.ROWS


@pytest.mark.parametrize("make", closed_forms.MODELS, ids=lambda f: f.__name__)
def test_closed_form(replicas, make):
    with replicas(2).scope():
        model, data, per_example = make()
        step = trace_step(model, data, ROWS)
    flops = count(step.program.trace.graph)
    assert not flops.uncounted
    assert not flops.unknown()
    assert flops.total(ROWS) == pytest.approx(ROWS * per_example, rel=0.02)
    assert flops.total(1000) == pytest.approx(1000 * per_example, rel=0.02)
