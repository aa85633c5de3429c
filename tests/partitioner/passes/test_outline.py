"""What each of four replicas runs between sums is one function."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.lowering import outlined
from kerasmgpu.partitioner.passes import outline
from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.devices import device_names
from tests.partitioner.passes.conftest import lines
from tests.partitioner.program import Variable
from tests.partitioner.rules.planned import given, replicas, same

SIZE = 3
LAYERS = 8


def training(*arguments):
    """A step of a chain of layers, with a slot for each, as momentum's."""
    *variables, x = arguments
    weights, slots = variables[:LAYERS], variables[LAYERS:]
    with tf.GradientTape() as tape:
        outputs = x
        for weight in weights:
            outputs = tf.tanh(outputs @ weight)
        loss = tf.reduce_mean(tf.reduce_sum(outputs**2, 1))
    for weight, slot, gradient in zip(
        weights, slots, tape.gradient(loss, weights)
    ):
        slot.assign(0.5 * slot + gradient)
        weight.assign_sub(0.1 * slot)
    return loss, tf.shape(outputs)


VARIABLES = [Variable(given([SIZE, SIZE], n)) for n in range(2 * LAYERS)]


def on(num_replicas):
    """The partitioned step, on copies of its variables."""
    strategy = kerasmgpu.MirroredStrategy(device_names(num_replicas))
    with strategy.scope():
        made = [variable.make() for variable in VARIABLES]
    return strategy.partitioned(lambda x: training(*made, x), name="f")


def written(num_replicas=4):
    """The text of the main function, by type of its nodes; and the others."""
    program = on(num_replicas).program((tf.TensorSpec([None, SIZE]),))
    *others, main = program.written().library
    return [node.op for node in main.node_def], others


@pytest.mark.parametrize("onednn", [False, True])
def test_each_replica_calls_its_pass_and_the_assignments(monkeypatch, onednn):
    monkeypatch.setattr(outlined, "is_rewritten_for_onednn", lambda: onednn)
    main, functions = written()
    assert main.count("Case") == 4 * len(functions)
    assert not {"MatMul", "Tanh", "TanhGrad"} & set(main)
    types = [node.op for body in functions for node in body.node_def]
    assert types.count("MatMul") == 3 * LAYERS - 1
    # Slots are read once, by the update, and not by each replica.
    assert types.count("ReadVariableOp") == LAYERS
    assert main.count("ReadVariableOp") == LAYERS
    assert types.count("AssignVariableOp") == 2 * LAYERS


def test_a_step_with_checks_assigns_outside_of_functions():
    strategy = kerasmgpu.MirroredStrategy(device_names(4))
    with strategy.scope():
        made = [variable.make() for variable in VARIABLES]

    def step(x):
        tf.debugging.assert_less(x, 1e6)
        return training(*made, x)

    program = strategy.partitioned(step, name="f").program(
        (tf.TensorSpec([None, SIZE]),)
    )
    *others, main = program.written().library
    inner = [node.op for body in others for node in body.node_def]
    assert "MatMul" in inner and "AssignVariableOp" not in inner
    outer = [node.op for node in main.node_def]
    assert outer.count("AssignVariableOp") == 4 * 2 * LAYERS


def test_three_replicas_call_nothing():
    main, functions = written(3)
    assert "MatMul" in main and not functions


def test_a_function_ends_where_enough_bytes_are_sent(monkeypatch):
    monkeypatch.setattr(outlined, "is_rewritten_for_onednn", lambda: False)
    monkeypatch.setattr(outline, "MOST_BYTES", 2 * 4 * SIZE * SIZE)
    monkeypatch.setattr(outline, "FEWEST", 1)
    main, functions = written()
    assert main.count("Case") == 4 * len(functions)
    sent = [
        sum(node.op == "MatMul" for node in body.node_def) for body in functions
    ]
    assert len([number for number in sent if number]) == 2


@pytest.mark.parametrize("rows", [11, 2])
@pytest.mark.parametrize("static", [False, True])
def test_results_are_those_of_one_device(monkeypatch, rows, static):
    monkeypatch.setattr(outline, "FEWEST", 2)
    same(
        training,
        [rows, SIZE],
        num_replicas=4,
        static=static,
        variables=VARIABLES,
    )


def test_the_text_has_the_instructions_inside(dumped):
    def step(x):
        for _ in range(outline.FEWEST):
            x = tf.tanh(x)
        return tf.reduce_sum(x)

    text = dumped(step, [None, 2], replicas=replicas(4))["outline"]
    (call,) = lines(text, "= Call(")
    assert call.endswith("on each replica")
    assert lines(text, "    Tanh:0 S(0) = Tanh(")


def test_sizes_that_only_a_function_knows_are_returned():
    """How many rows are chosen is needed outside, where they are gathered."""

    def step(x):
        for _ in range(outline.FEWEST):
            x = tf.tanh(x)
        chosen = tf.boolean_mask(x, x[:, 0] > 0)
        return tf.shape(chosen), chosen * 2

    x = tf.random.stateless_normal([9, 2], (1, 2))
    partitioned = Partitioned(step, replicas(4))
    for expected, found in zip(step(x), partitioned(x)):
        tf.debugging.assert_near(
            tf.cast(expected, tf.float32), tf.cast(found, tf.float32)
        )


STEPS = pathlib.Path(__file__).with_name("outlined_steps.py")


@pytest.mark.nightly
@pytest.mark.parametrize("option", ["0", "1"])
def test_outlined_steps_have_the_bits_of_others(option):
    """With oneDNN's kernels and without, as the processor's default may be."""
    process = subprocess.run(
        [sys.executable, STEPS],
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": option},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    results = json.loads(process.stdout.splitlines()[-1])
    assert results["onednn"] == (option == "1")
    equal = {}
    for name, (calls, outlined_bits, other_bits) in results["steps"].items():
        assert calls > 0, name
        equal[name] = outlined_bits == other_bits
    # Without convolutions, functions keep out of oneDNN's products.
    assert equal == {"convolutional": True, "attentive": option == "0"}
