"""Writes functions that each replica calls; see `passes/outline.py`."""

import itertools
from collections.abc import Callable
from typing import Any, cast

from tensorflow.core.framework import function_pb2
from tensorflow.python.util import _pywrap_util_port

from kerasmgpu.partitioner.ir.instructions import Operation
from kerasmgpu.partitioner.ir.lowered import Call, Lowered
from kerasmgpu.partitioner.lowering.all_passes import finish
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.call_options import SERIALIZED
from kerasmgpu.partitioner.lowering.host_sizes import Request
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.rules.kinds import Rows
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.references import Reference

_numbers = itertools.count()


def write(
    parent: Build, call: Call, emit: Callable[[Build, Lowered], None]
) -> None:
    """Writes a function, and its calls in the function of `parent`."""
    body = call.body
    build = Build(body, parent.library, Replicas(body.mesh), parent)
    given = [parent.references(one) for one in call.inputs]
    for one, references in zip(call.inputs, given):
        argument = build.writer.add_input("given", references[0].dtype)
        tensor = one.tensor
        is_defined = parent.is_written(tensor)
        if is_defined and parent.natural(tensor) == one:
            build.give(one, [argument])
        else:
            build.hold(one, [argument])
    emit(build, body)
    outputs = [build.references(one)[0] for one in body.outputs]
    requests = list(build.sizes.imports)
    build.writer.effects = build.effects()
    function = finish(build, f"kerasmgpu_body_{next(_numbers)}", outputs)
    parent.library.append(function)
    nodes = [
        one.node for one in body.instructions if isinstance(one, Operation)
    ]
    waiting = [
        node
        for node in nodes
        if node.controls or node in parent.program.after_batch
    ]
    type, selector, attributes = _call(parent, function)
    attributes["Tout"] = tuple(one.dtype for one in outputs)
    made, names = [], []
    for place in range(parent.mesh.num):
        inputs = [references[place] for references in given]
        inputs += [_size(parent, request, place) for request in requests]
        made.append(
            parent.op(
                type,
                [*selector, *inputs],
                place,
                f"replica_{place}/body",
                _controls(parent, waiting, place),
                **attributes,
            )
        )
        names.append(parent.writer.last)
    for node in nodes:
        for name in names:
            parent.note_done(node, name)
    parent.note_ran(call, names)
    for one, defines, references in zip(
        call.outputs, call.defines, map(list, zip(*made))
    ):
        (parent.give if defines else parent.hold)(one, references)


def _call(
    parent: Build, function: function_pb2.FunctionDef
) -> tuple[str, list[Reference], dict[str, Any]]:
    """Chooses the operation that calls a function.

    A branch of `Case` is prepared fastest: TensorFlow runs none of its passes
    behind partitioning on it. With oneDNN, one of these chooses the kernels
    (`MklLayoutRewritePass`), which takes half of the time of convolutions: the
    functions of a step that has some are called by an operation whose functions
    are passed through it, and kept from being inlined. In other steps products of
    a few rows are faster without oneDNN's kernels.

    Returns:
        `(type, selector, attributes)`: the type, inputs before the function's
        own, and attributes.
    """
    name = function.signature.name
    convolves = any("Conv" in node.type for node in parent.program.graph.nodes)
    if not (convolves and is_rewritten_for_onednn()):
        return "Case", [parent.constant(0)], {"branches": (name,)}
    function.attr["_noinline"].b = True
    attributes = {"f": name, "_noinline": True, "config_proto": SERIALIZED}
    return "StatefulPartitionedCall", [], attributes


def is_rewritten_for_onednn() -> bool:
    """Whether TensorFlow chooses oneDNN's kernels for operations on the CPU.

    By default it does on processors with AVX512-VNNI or later extensions;
    `TF_ENABLE_ONEDNN_OPTS` overrides that. The private function is that of
    TensorFlow's own tests; checked on TensorFlow 2.21.
    """
    return bool(_pywrap_util_port.IsMklEnabled())


def _size(parent: Build, request: Request, place: int) -> Reference:
    """Returns a size that the function takes, for one replica."""
    if request[0] != "symbol":
        what, rows, number = cast(tuple[str, Rows, int], request)
        request = (what, rows, number + place)
    return parent.sizes.exported(request)


def _controls(parent: Build, nodes: list[Node], place: int) -> list[str]:
    """Returns names of what any of some nodes waits for, at a place."""
    names: dict[str, None] = {}
    for node in nodes:
        names.update(dict.fromkeys(parent.controls(node, place)))
    return list(names)
