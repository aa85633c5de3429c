"""Sharded programs end with the weights, logs and predictions of one device."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from benchmarks.exactness import harness
from tests.strategies.sharded import mirrored
from tests.strategies.sharded_programs import FLOAT32, PROGRAMS, ROWS, TARGETS

pytestmark = pytest.mark.usefixtures("float64")

QUICK = {
    ("tables, adagrad", "embeddings", 3),
    ("ema", "optimizer", 3),
    ("weight decay", "optimizer", 2),
    ("own weights", "weights", 3),
    ("int8 base", "weights", 3),
}
"""Runs of the quick tier."""

RUNS = {
    ("gpt", "weights", 3),
    ("run eagerly", "weights", 2),
    ("tables, sgd", "embeddings", 2),
    ("tables, momentum", "weights", 3),
    ("tables, clipnorm", "optimizer", 2),
    ("lora", "optimizer", 3),
    ("gan", "optimizer", 2),
}
"""The other programs run sharded in `tests/parity`: here in micro-batches only."""


QUICK_PARTS = {
    ("tables, adagrad", "embeddings", 3, 2),
}
"""Runs with micro-batches of the quick tier."""

IN_PARTS = {
    ("convnet", "weights", 2, 3),
    ("masked lstm", "weights", 2, 2),
    ("tables, momentum", "weights", 2, 2),
    ("lora", "weights", 2, 2),
    ("loss scale", "weights", 2, 2),
    ("gradient accumulation", "weights", 2, 2),
    ("weight decay", "weights", 2, "auto"),
    ("steps per execution", "weights", 2, 2),
    ("jit compile", "weights", 2, 2),
    ("run eagerly", "weights", 2, 2),
    ("gpt", "weights", 2, 3),
    ("gan", "weights", 2, 2),
    ("ema", "optimizer", 3, 2),
    ("tables, clipnorm", "embeddings", 2, 3),
    ("own weights", "weights", 3, 3),
    ("int8 base", "weights", 2, 2),
}


def marked(quick, others):
    """Parameters of tests, by program: first the quick ones."""

    def parameters(runs, marks):
        for run in sorted(runs, key=str):
            name, shard, *numbers = run
            text = " in ".join(map(str, numbers))
            yield pytest.param(
                *run, id=f"{name}, {shard} on {text}", marks=marks
            )

    return [*parameters(quick, ()), *parameters(others, pytest.mark.nightly)]


def trained(name, strategy=None, evaluates=True):
    """The outcome of a program, and its model."""
    keras.utils.set_random_seed(3)
    with strategy.scope() if strategy else contextlib.nullcontext():
        program = PROGRAMS[name]()
    return program.run(evaluates), program.model


@functools.cache
def on_one_device(name, evaluates):
    return trained(name, evaluates=evaluates)[0]


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize("name, shard, num_replicas", marked(QUICK, RUNS))
def test_as_on_one_device(name, shard, num_replicas):
    check(name, mirrored(num_replicas, shard))


@pytest.mark.parametrize(
    "name, shard, num_replicas, micro_batches", marked(QUICK_PARTS, IN_PARTS)
)
def test_micro_batches(name, shard, num_replicas, micro_batches):
    strategy = mirrored(num_replicas, shard, micro_batches=micro_batches)
    # Micro-batches divide steps that train; the others are a few programs'.
    run = name, shard, num_replicas, micro_batches
    check(name, strategy, evaluates=run in QUICK_PARTS)


@pytest.mark.parametrize(
    "name, micro_batches",
    [pytest.param("gpt", 1, marks=pytest.mark.nightly), ("weight decay", 2)],
)
def test_devices_that_share_no_memory(like_gpus, name, micro_batches):
    """Each adds up what it gets, and gathers weights for itself."""
    strategy = mirrored(3, "weights", micro_batches=micro_batches)
    check(name, strategy)
    assert not strategy.replicas.mesh.shares_memory


def check(name, strategy, evaluates=True):
    """Asserts that a program ends as on one device."""
    outcome, model = trained(name, strategy, evaluates)
    assert count_of_sharded(model) > 0
    expected = on_one_device(name, evaluates)
    assert list(expected) == list(outcome)
    for what, found in outcome.items():
        distance = harness.log_distance(expected[what], found)
        tolerance = 1e-6 if name in FLOAT32 else 1e-9
        assert distance <= tolerance, f"{what}: {distance:.1e}"


def count_of_sharded(model):
    own = [getattr(model, name, None) for name in ("first", "second")]
    optimizers = [one for one in (model.optimizer, *own) if one is not None]
    variables = model.variables + sum((o.variables for o in optimizers), [])
    return sum(hasattr(v.value, "parts") for v in variables)


@pytest.mark.parametrize("num_replicas", [2, 3])
def test_a_partitioned_function_with_own_variables(num_replicas):
    def outcome(strategy=None):
        with strategy.scope() if strategy else contextlib.nullcontext():
            kernel = tf.Variable(tf.reshape(tf.range(12.0) / 9, [6, 2]))
            bias = tf.Variable(tf.zeros([2]))
            moment = tf.Variable(tf.zeros([6, 2]))

            def step(x, y):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((x @ kernel + bias - y) ** 2)
                gradients = tape.gradient(loss, [kernel, bias])
                moment.assign(0.9 * moment + gradients[0])
                kernel.assign_sub(0.1 * moment)
                bias.assign_sub(0.1 * gradients[1])
                return loss

            if strategy:
                step = kerasmgpu.partition(step)
        x, y = ROWS.astype("float32"), TARGETS.astype("float32")
        losses = [step(x, y).numpy() for _ in range(3)]
        return losses, [v.numpy() for v in (kernel, bias, moment)], kernel

    losses, values, _ = outcome()
    own_losses, own_values, kernel = outcome(mirrored(num_replicas, "weights"))
    assert kernel.shard_axes == (0,)
    np.testing.assert_allclose(own_losses, losses, rtol=1e-6)
    for own, expected in zip(own_values, values):
        np.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-6)
