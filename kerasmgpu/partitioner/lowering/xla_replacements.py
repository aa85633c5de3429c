"""Replaces operations of XLA clusters that TensorFlow translates slowly.

For each node of some types TensorFlow builds a pipeline of MLIR's, in 9 ms of
CPU time: on each device, and also where the compiled program is in the cache. It
translates the same from other operations in 0.1 ms. Types seen on TensorFlow
2.18 and 2.21: with `TF_CPP_VMODULE=compile_mlir_util=1` it logs each node.
"""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2

from kerasmgpu.partitioner.step.definitions import set_attributes


def replaced(
    node: node_def_pb2.NodeDef,
    rank: int | None,
    function: function_pb2.FunctionDef,
) -> str | None:
    """Adds other nodes in place of one, with the same HLO instructions.

    Args:
        rank: Rank of its first input; `None` if it is unknown.
        function: Function that the nodes are added to. The last one has the
            name of `node`.

    Returns:
        Name of its output, as in `"name:output:0"`; `None` if the node is to
        be added as it is.
    """
    if node.op not in ("Relu", "ReluGrad", "BiasAddGrad"):
        return None
    dtype = tf.as_dtype(node.attr["T"].type)

    def add(
        name: str, op: str, inputs: list[str], **attributes: object
    ) -> None:
        added = function.node_def.add(name=name, op=op, device=node.device)
        added.input.extend(inputs)
        set_attributes(added, attributes)

    def constant(name: str, value: object, type: tf.DType) -> str:
        array = np.asarray(value, type.as_numpy_dtype)
        tensor = tf.make_tensor_proto(array, dtype=type)
        add(name, "Const", [], dtype=type, value=tensor)
        return f"{name}:output:0"

    own, inputs = node.name, list(node.input)
    if node.op == "Relu":
        zero = constant(f"{own}/zero", 0, dtype)
        value, *controls = inputs
        # In this order: TensorFlow 2.18 returns the first input for NaN.
        add(own, "Maximum", [value, zero, *controls], T=dtype)
        return "z"
    if node.op == "ReluGrad":
        gradients, features, *controls = inputs
        zero = constant(f"{own}/zero", 0, dtype)
        add(f"{own}/passes", "Greater", [features, zero], T=dtype)
        passes = f"{own}/passes:z:0"
        add(own, "SelectV2", [passes, gradients, zero, *controls], T=dtype)
        return "output"
    if rank is None or node.attr["data_format"].s == b"NCHW":
        return None
    value, *controls = inputs
    axes = constant(f"{own}/axes", list(range(rank - 1)), tf.int32)
    add(
        own,
        "Sum",
        [value, axes, *controls],
        T=dtype,
        Tidx=tf.int32,
        keep_dims=False,
    )
    return "output"
