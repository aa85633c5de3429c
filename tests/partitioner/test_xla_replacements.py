"""Operations that XLA clusters have in another form give the same bits."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.eager import context

from kerasmgpu.partitioner.lowering.xla_replacements import replaced
from kerasmgpu.partitioner.step.definitions import argument, set_attributes

OUTPUTS = {"Relu": "activations", "ReluGrad": "backprops"}
_numbers = itertools.count()


def compiled(op, inputs, replaces, **attributes):
    """The output of an operation that XLA compiles, and its nodes' types."""
    function = function_pb2.FunctionDef()
    name = f"xla_form_{next(_numbers)}"
    function.signature.name = name
    function.attr["_XlaMustCompile"].b = True
    dtype = inputs[0].dtype
    node = tf.compat.v1.NodeDef(name="node", op=op)
    set_attributes(node, {"T": dtype, **attributes})
    for number in range(len(inputs)):
        node.input.append(f"x_{number}")
        function.signature.input_arg.append(argument(f"x_{number}", dtype))
    function.signature.output_arg.append(argument("y", dtype))
    output = None
    if replaces:
        output = replaced(node, inputs[0].shape.rank, function)
    if output is None:
        function.node_def.append(node)
        output = OUTPUTS.get(op, "output")
    function.ret["y"] = f"node:{output}:0"
    context.context().add_function_def(function)
    (made,) = context.context().call_function(name.encode(), inputs, 1)
    return made.numpy(), [one.op for one in function.node_def]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", ["Relu", "ReluGrad", "BiasAddGrad"])
def test_bits_are_the_same(op, dtype):
    values = np.random.default_rng(0).normal(size=(2, 33, 5, 7))
    values[:, 0, 0] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40]
    if op == "BiasAddGrad":
        values = values[:, 1:]
    given = list(tf.cast(values, dtype))[: 2 if op == "ReluGrad" else 1]
    expected, types = compiled(op, given, False)
    assert types == [op]
    found, types = compiled(op, given, True)
    assert op not in types
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "op, data_format", [("BiasAddGrad", "NCHW"), ("Tanh", None)]
)
def test_others_stay_as_they_are(op, data_format):
    attributes = {"data_format": data_format} if data_format else {}
    node = tf.compat.v1.NodeDef(name="node", op=op, input=["x"])
    set_attributes(node, {"T": tf.float32, **attributes})
    function = function_pb2.FunctionDef()
    assert replaced(node, 4, function) is None
    assert not function.node_def
