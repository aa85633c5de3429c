"""What a written step asks of GPUs, and faults that are planted there."""

import collections

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.step import kernels
from kerasmgpu.prove.placement import place
from tests.prove import steps

pytestmark = pytest.mark.skipif(
    not kernels.has_kernels("MatMul", "GPU"),
    reason="this TensorFlow lists no kernels of GPUs",
)


def placed(make, **settings):
    step = steps.written(make, **settings)
    return place(step, step.devices)


def first(library, op, device="GPU:1"):
    return next(
        node
        for node in library[-1].node_def
        if node.op == op and node.device.endswith(device)
    )


def on_a_device_that_is_not_there(library):
    node = first(library, "Tanh")
    node.device = node.device.replace("GPU:1", "GPU:7")


def of_another_devices_variable(library):
    mine, other = (
        first(library, "ReadVariableOp"),
        first(library, "ReadVariableOp", "GPU:2"),
    )
    mine.input[0] = other.input[0]


def sent_as_int32(library):
    """As if the casts around a collective of integers were left out."""
    for function in library:
        named = {node.name: node for node in function.node_def}
        for node in function.node_def:
            if node.op.startswith("Coll") and node.attr["T"].type == tf.int64:
                cast = named[node.input[0].split(":")[0]]
                node.input[0] = cast.input[0]
                node.attr["T"].type = tf.int32.as_datatype_enum
                for other in function.node_def:
                    if f"{node.name}:data:0" in other.input:
                        other.attr["SrcT"].type = tf.int32.as_datatype_enum


@pytest.mark.parametrize(
    "make, plant, sentence",
    [
        (
            steps.normalised,
            on_a_device_that_is_not_there,
            "is placed on GPU:7, which there is not",
        ),
        (
            steps.normalised,
            of_another_devices_variable,
            "runs on GPU:1 and takes a variable on GPU:2",
        ),
        (steps.loop, sent_as_int32, "sends int32, which GPUs refuse"),
    ],
)
def test_a_planted_fault_is_named(make, plant, sentence):
    found = placed(make, change=plant)
    assert any(sentence in fault for fault in found.faults), found.faults


def test_a_variable_that_only_the_host_can_change_is_a_fault():
    fault, *_ = placed(steps.counted).faults
    assert "count_1/ResourceCountUpTo' takes a variable on GPU:0" in fault
    assert "no kernel of GPUs (T=int64)" in fault


def compiled():
    return steps.normalised(jit_compile=True)


def test_an_operation_that_xla_cannot_compile_is_a_fault():
    def plant(library):
        node = next(
            node
            for one in library[:-1]
            for node in one.node_def
            if node.op == "Tanh"
        )
        node.op = "BesselI0"

    found = placed(compiled, change=plant)
    assert any(
        "has no kernel of XLA for GPUs (T=float" in fault
        for fault in found.faults
    ), found.faults


def test_what_has_no_kernel_runs_on_the_host():
    found = placed(steps.text)
    assert not found.faults
    times = collections.Counter(kind for _, kind, _ in found.moved.elements())
    # On each of the four replicas.
    assert times == {"AsString": 4, "StringLength": 4}
    # The sum comes to the host as a float, its length back as an integer.
    by_end = {name.rpartition("/")[2]: n for name, n in found.copied.items()}
    assert by_end["AsString"] == 4


def test_most_operations_of_a_step_run_on_gpus_and_little_is_copied():
    found = placed(steps.normalised)
    assert not found.faults and not found.moved
    assert found.on_gpus > 4 * 100
    # A replica's 6 of 24 rows, of 6 values and a target, with sizes.
    assert 6 * 7 * 4 <= sum(found.copied.values()) < 6 * 7 * 4 + 200


@pytest.mark.parametrize(
    "type, dtype, on_host",
    [
        ("MatMul", tf.float32, set()),
        ("Sum", tf.float32, {"reduction_indices"}),
        # Integers of 32 bits are sizes: GPUs leave them on the host.
        ("Sum", tf.int32, {"input", "output", "reduction_indices"}),
        ("MatMul", tf.string, None),
        ("StringLower", tf.string, None),
    ],
)
def test_kernels(type, dtype, on_host):
    node = tf.compat.v1.NodeDef(op=type)
    node.attr["T"].type = dtype.as_datatype_enum
    node.attr["Tidx"].type = tf.int32.as_datatype_enum
    found = kernels.kernel_of(node)
    assert (found and found.on_host) == on_host
