"""Makes a traced graph a function that runs on any one device.

Nodes of the trace that update a variable are placed on the first replica's device.
Without their devices, TensorFlow places all nodes where the function is called.
Checked on TensorFlow 2.18 and 2.21.
"""

import itertools
from collections.abc import Mapping

from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework.func_graph import FuncGraph

from kerasmgpu.partitioner.lowering.content_names import functions_in
from kerasmgpu.partitioner.step.definitions import XLA_MUST_COMPILE

_numbers = itertools.count()


def library(
    func_graph: FuncGraph, is_compiled: bool
) -> list[function_pb2.FunctionDef]:
    """Returns the functions that a graph calls, and the graph as the last one.

    Its inputs are those of the graph, in order; captured tensors come last. It
    returns nothing.
    """
    name = f"kerasmgpu_{func_graph.name}_on_one_device_{next(_numbers)}"
    main = function_pb2.FunctionDef()
    # TensorFlow's library has the function only while this object exists.
    made = atomic_function.from_func_graph(f"{name}_traced", func_graph, {})
    main.CopyFrom(made.definition)
    called = func_graph.as_graph_def().library.function
    names = {main.signature.name: name}
    for number, one in enumerate(called):
        names[one.signature.name] = f"{name}_{number}"
    functions = []
    for one in (*called, main):
        function = function_pb2.FunctionDef()
        function.CopyFrom(one)
        function.signature.name = names[one.signature.name]
        for node in function.node_def:
            _free(node, names)
        functions.append(function)
    del functions[-1].signature.output_arg[:]
    functions[-1].ret.clear()
    if is_compiled:
        functions[-1].attr[XLA_MUST_COMPILE].b = True
    return functions


def _free(node: node_def_pb2.NodeDef, names: Mapping[str, str]) -> None:
    """Drops a node's device, and renames the functions that it calls."""
    node.device = ""
    node.op = names.get(node.op, node.op)
    for attribute in node.attr.values():
        for called in functions_in(attribute):
            called.name = names.get(called.name, called.name)
