"""Attributes that follow from an operation's inputs and definition."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.lowering.operation_writer import OperationWriter
from kerasmgpu.partitioner.lowering.signatures import signature
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.places import HOST

CPUS = [f"/job:localhost/replica:0/task:0/device:CPU:{n}" for n in (0, 1)]
INT, FLOAT = tf.int32, tf.float32


def attributes(type, types, **given):
    """`{name: value}` of an operation on inputs of some types."""
    definition = signature(type, tuple(types), tuple(given.items())).definition
    node = Node(type, type, definition)
    return {name: node.attr(name) for name in definition.attr}


@pytest.mark.parametrize(
    "type, types, given, expected",
    [
        ("Sub", [FLOAT, FLOAT], {}, {"T": FLOAT}),
        (
            "ConcatV2",  # A list, and an input behind it.
            [FLOAT, FLOAT, FLOAT, INT],
            {},
            {"N": 3, "T": FLOAT, "Tidx": INT},
        ),
        (
            "DynamicStitch",  # Two lists of one length.
            [INT, INT, FLOAT, FLOAT],
            {},
            {"N": 2, "T": FLOAT},
        ),
        (
            "Pack",
            [tf.int64, tf.int64],
            {},
            {"N": 2, "T": tf.int64, "axis": 0},
        ),
        ("Pack", [INT], {"axis": 1}, {"N": 1, "T": INT, "axis": 1}),
        (
            "Cast",
            [INT],
            {"DstT": FLOAT},
            {"SrcT": INT, "DstT": FLOAT, "Truncate": False},
        ),
        (
            "Assert",
            [tf.bool, tf.string, INT],
            {"summarize": 1},
            {"T": [tf.string, INT], "summarize": 1},
        ),
        ("NoOp", [], {}, {}),
        (
            "PyFunc",
            [],
            {"token": "", "Tout": ()},
            {"token": "", "Tin": [], "Tout": []},
        ),
    ],
)
def test_attributes_follow(type, types, given, expected):
    assert attributes(type, types, **given) == expected


def test_functions_are_passed_by_name():
    given = {"Tout": (FLOAT,), "then_branch": "one", "else_branch": "other"}
    found = signature("If", (tf.bool, INT, FLOAT), tuple(given.items()))
    written = found.definition.attr
    assert list(written["Tin"].list.type) == [INT, FLOAT]
    assert written["Tcond"].type == tf.bool
    assert written["then_branch"].func.name == "one"
    assert "output_shapes" not in written  # Empty by default.


def test_outputs_have_the_types_that_the_attributes_say():
    unpacked = signature("Unpack", (INT,), (("num", 2),))
    assert unpacked.outputs == [("output:0", INT), ("output:1", INT)]
    switch = signature("Switch", (FLOAT, tf.bool))
    assert switch.outputs == [
        ("output_false:0", FLOAT),
        ("output_true:0", FLOAT),
    ]
    assert signature("Shape", (FLOAT,)).outputs == [("output:0", INT)]


@pytest.mark.parametrize(
    "type, types, message",
    [
        (
            "AddV2",
            [FLOAT, INT],
            "AddV2 takes its input 'y' of type float32. Received: int32.",
        ),
        (
            "AddN",
            [FLOAT, INT],
            "AddN takes its input 'inputs' of type float32, float32. "
            "Received: float32, int32.",
        ),
        (
            "Switch",
            [FLOAT, INT],
            "Switch takes its input 'pred' of type bool. Received: int32.",
        ),
        (
            "Sub",
            [FLOAT],
            "Sub takes x, y. Received: 1 inputs of type float32.",
        ),
        (
            "DynamicStitch",
            [INT, INT, FLOAT],
            "DynamicStitch takes indices, data. "
            "Received: 3 inputs of type int32, int32, float32.",
        ),
        (
            "ConcatV2",  # At least two values.
            [FLOAT, INT],
            "ConcatV2 takes values, axis. "
            "Received: 2 inputs of type float32, int32.",
        ),
        (
            "Unpack",
            [FLOAT],
            "Unpack needs its attribute 'num': inputs of float32 don't say it, "
            "and it has no default.",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_a_line(type, types, message):
    with pytest.raises(TypeError) as raised:
        signature(type, tuple(types))
    assert str(raised.value) == message


def test_an_operation_runs_where_its_first_input_is():
    build = OperationWriter(Mesh.on(CPUS, CPUS[0]))
    given = build.writer.add_input("given", FLOAT)
    assert build.place_of(given) == HOST
    on_second = build.op("Neg", [given], 1)[0]
    assert build.op("Exp", [on_second])[0].device == CPUS[1]
    # The host and the first replica have one device here.
    size = build.op("Shape", [on_second], HOST)[0]
    assert size.device == CPUS[0] and size.is_on_host
    half = build.cast(size, FLOAT)
    assert half.dtype == FLOAT and half.node in build.writer.on_host


def test_equal_operations_are_one_at_the_place_that_is_asked_for():
    build = OperationWriter(Mesh.on(CPUS, CPUS[0]))
    given = build.writer.add_input("given", FLOAT)
    on_replica = build.op("Neg", [given], 0)[0]
    on_host = build.op("Neg", [given], HOST)[0]
    assert on_replica == on_host
    assert on_host.is_on_host and not on_replica.is_on_host
    assert len(build.writer.nodes) == 1
