"""Counted operations are those of closed forms."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.commands.traced_step import trace_step
from kerasmgpu.flops.counting import count
from kerasmgpu.flops.step_flops import value
from tests.flops import closed_forms

ROWS = closed_forms.ROWS


LARGE = (closed_forms.resnet, closed_forms.mobilenet)


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, marks=pytest.mark.nightly) if make in LARGE else make
        for make in closed_forms.MODELS
    ],
    ids=lambda f: f.__name__,
)
def test_closed_form(replicas, make):
    with replicas(2).scope():
        model, data, per_example = make()
        step = trace_step(model, data, ROWS)
    flops = count(step.program.trace.graph)
    assert not flops.uncounted
    assert not flops.unknown()
    assert flops.total(ROWS) == pytest.approx(ROWS * per_example, rel=0.02)
    assert flops.total(1000) == pytest.approx(1000 * per_example, rel=0.02)


def forward(step):
    """Operations of one row in the forward pass."""
    products = count(step.program.trace.graph).products
    return sum(value(p.flops, 1) for p in products if not p.is_backward)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name, giga_multiply_adds",
    [
        ("ResNet50", 3.86),  # He et al. 2016: 3.8.
        ("MobileNetV2", 0.300),  # Sandler et al. 2018: 300 million.
    ],
)
def test_published_counts(replicas, name, giga_multiply_adds):
    with replicas(2).scope():
        model = getattr(keras.applications, name)(weights=None)
        model.compile("sgd", "mse")
        x = np.zeros((2, *model.input_shape[1:]), "float32")
        step = trace_step(model, (x, np.zeros((2, 1000), "float32")), 2)
    found = forward(step) / 2e9
    assert found == pytest.approx(giga_multiply_adds, rel=0.015)


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "make", [closed_forms.mlp, closed_forms.unet, closed_forms.separable]
)
def test_tensorflows_profiler(replicas, make):
    """It counts the forward pass's biases and pooling, too: 1 to 7 % more."""
    with replicas(2).scope():
        model, data, _ = make()
        step = trace_step(model, data, ROWS)
    specification = tf.TensorSpec([1, *model.input_shape[1:]])
    traced = tf.function(lambda x: model(x)).get_concrete_function(
        specification
    )
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder.float_operation()
    options["output"] = "none"
    profiled = profiler.profile(traced.graph, options=options)
    ratio = profiled.total_float_ops / forward(step)
    assert 1 <= ratio < 1.07
