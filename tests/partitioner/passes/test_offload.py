"""Updates of variables on the host run there; gradients and changes cross."""

import keras
import numpy as np
import pytest

from kerasmgpu.partitioner.ir.instructions import ToDevice, ToHost
from kerasmgpu.partitioner.runtime.costs import Costs
from kerasmgpu.strategies.layout_report import prepared_step
from tests.strategies.sharded import mirrored, pretended_devices

SIZE = 64
BYTES = SIZE * SIZE * 4
HOST = "CPU:0"
"""No replica is on it here, as where replicas are on GPUs."""


def written(optimizer, num_replicas, shard="optimizer", **compiled):
    """The written step of a dense kernel, under replicas on other devices."""
    devices = [f"CPU:{number}" for number in range(1, num_replicas + 1)]
    with pretended_devices(shares_memory=False):
        strategy = mirrored(
            num_replicas, shard, offload="optimizer", devices=devices
        )
        with strategy.scope():
            layer = keras.layers.Dense(SIZE, use_bias=False)
            model = keras.Sequential([keras.Input((SIZE,)), layer])
            model.compile(optimizer(), "mse", **compiled)
        batch = np.zeros((8, SIZE), "float32")
        program, _ = prepared_step(model, (batch, batch))
        return program.written()


def nodes_of(step):
    """Nodes of a written step by name, with those of branches."""
    return {node.name: node for one in step.library for node in one.node_def}


def on_host(node):
    return node.device.endswith(HOST)


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize(
    "optimizer, to_host, to_device",
    [
        (keras.optimizers.Adam, 1, 1),
        (lambda: keras.optimizers.SGD(momentum=0.9, nesterov=True), 1, 1),
        # Averages take the new weight; every second step the weight takes them.
        (
            lambda: keras.optimizers.Adam(
                use_ema=True, ema_overwrite_frequency=2
            ),
            2,
            2,
        ),
        (lambda: keras.optimizers.RMSprop(centered=True, momentum=0.9), 1, 1),
        (lambda: keras.optimizers.Adadelta(global_clipnorm=1.0), 1, 1),
    ],
    ids=["adam", "sgd", "ema", "rmsprop", "adadelta"],
)
def test_gradients_cross_and_changes(
    optimizer, to_host, to_device, num_replicas
):
    step = written(optimizer, num_replicas)
    part = BYTES // num_replicas
    assert Costs(step.lowered).linked() == (to_host * part, to_device * part)
    made = [
        one for i in step.lowered.on_host for one in i.outputs
    ]  # On the host.
    for instruction in step.lowered.instructions:
        is_on_host = instruction in step.lowered.on_host
        for one in instruction.inputs:
            is_large = one.tensor.shape not in ((), None)
            is_copy = isinstance(instruction, (ToDevice, ToHost))
            if is_large and one.tensor.dtype.is_floating and not is_copy:
                assert (one in made) == is_on_host, instruction


def test_only_what_follows_slots_is_on_the_host():
    nodes = nodes_of(written(keras.optimizers.Adam, 2))
    types = {node.op for node in nodes.values() if on_host(node)}
    assert {"ReadVariableOp", "Square", "Sqrt", "AssignVariableOp"} <= types
    assert not types & {"MatMul", "Sum", "Pow"}
    for node in nodes.values():
        # The gradient's product, and the weight's subtraction.
        assert not on_host(node) or "AssignSub" not in node.name
    reads = [n for n in nodes.values() if n.op == "ReadVariableOp"]
    # Two slots, of two replicas each.
    assert sum(map(on_host, reads)) == 4


def test_branches_update_on_the_host_too():
    def scaled():
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())

    for num_replicas in (1, 2):
        step = written(scaled, num_replicas)
        part = BYTES // num_replicas
        assert Costs(step.lowered).linked() == (part, part)
        branch = [one for one in step.library if "_If_" in one.signature.name]
        types = {
            node.op for one in branch for node in one.node_def if on_host(node)
        }
        assert {"Square", "Sqrt"} <= types


def test_xla_compiles_no_update_on_the_host():
    step = written(keras.optimizers.Adam, 2, jit_compile=True)
    assert step.lowered.clusters
    assert {one.device[-5:] for one in step.lowered.clusters} == {
        "CPU:1",
        "CPU:2",
    }
    types = {node.op for node in nodes_of(step).values() if on_host(node)}
    assert {"Square", "Sqrt"} <= types


def test_rows_of_tables_are_updated_on_the_host():
    """A slot's rows are added to where they are; Keras's Adagrad does so."""
    devices = ["CPU:1", "CPU:2"]
    strategy = mirrored(2, "weights", offload="optimizer", devices=devices)
    with strategy.scope():
        table = keras.layers.Embedding(40, 8)
        model = keras.Sequential([keras.Input((3,)), table])
        model.compile("adagrad", "mse")
    x = np.zeros((4, 3), "int32")
    y = np.zeros((4, 3, 8), "float32")
    program, _ = prepared_step(model, (x, y))
    nodes = nodes_of(program.written())
    (slot,) = (v for v in model.optimizer.variables if v.shape == (40, 8))
    assert all(part.device.endswith(HOST) for part in slot.value.parts)
    places = {
        on_host(node)
        for node in nodes.values()
        if node.op == "ResourceScatterAdd"
    }
    assert True in places
