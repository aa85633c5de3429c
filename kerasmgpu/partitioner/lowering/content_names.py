"""Names functions by their content, so that equal ones are one function.

XLA compiles once per name. Functions of two replicas, levels or processes often
differ in nothing but the names of their nodes.
"""

import hashlib
from collections.abc import Iterator, Mapping

from tensorflow.core.framework import attr_value_pb2, function_pb2, node_def_pb2

from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import node_name

PREFIX = "kerasmgpu_compiled_"
"""Start of the names of functions that XLA compiles."""

Library = list[function_pb2.FunctionDef]


def add_by_content(
    function: function_pb2.FunctionDef, library: Library
) -> tuple[str, dict[str, str]]:
    """Adds a function under a name that its content gives, unless it is there.

    Functions that it calls are added under such names, too. Nodes, arguments
    and outputs are numbered; attributes that XLA doesn't read are dropped.

    Args:
        function: `FunctionDef` whose nodes are sorted topologically.
        library: `FunctionDef`s, among them those that it calls.

    Returns:
        Its name, and the former name of each of its nodes by the new one.
    """
    named = function_pb2.FunctionDef()
    signature = named.signature
    signature.is_stateful = function.signature.is_stateful
    names: dict[str, str] = {}
    for one in function.signature.input_arg:
        names[one.name] = f"argument_{len(names)}"
        added = signature.input_arg.add(type=one.type)
        added.name = names[one.name]
    equal: dict[bytes, str] = {}
    kept = []
    for node in function.node_def:
        if node.op == "Const":
            value = node.attr["value"].SerializeToString(deterministic=True)
            names[node.name] = equal.setdefault(value, f"node_{len(kept)}")
            if names[node.name] != f"node_{len(kept)}":
                continue
        else:
            names[node.name] = f"node_{len(kept)}"
        kept.append(node)
    for node in kept:
        _add_node(named, node, names, library)
    for number, one in enumerate(function.signature.output_arg):
        signature.output_arg.add(name=f"output_{number}", type=one.type)
        named.ret[f"output_{number}"] = renamed(function.ret[one.name], names)
    for number, effect in enumerate(function.signature.control_output):
        signature.control_output.append(f"effect_{number}")
        named.control_ret[f"effect_{number}"] = names[
            function.control_ret[effect]
        ]
    for key in filter(_is_read, function.attr):
        named.attr[key].CopyFrom(function.attr[key])
    content = named.SerializeToString(deterministic=True)
    digest = hashlib.sha256(content).hexdigest()[:24]
    signature.name = PREFIX + digest
    if all(one.signature.name != signature.name for one in library):
        library.append(named)
    return signature.name, {names[node.name]: node.name for node in kept}


def _add_node(
    function: function_pb2.FunctionDef,
    node: node_def_pb2.NodeDef,
    names: Mapping[str, str],
    library: Library,
) -> None:
    added = function.node_def.add(op=node.op)
    added.name = names[node.name]
    added.input.extend(renamed(reference, names) for reference in node.input)
    defined = {one.name for one in graphs.op_definition(node.op).attr}
    for key in node.attr:
        if key in defined or _is_read(key):
            value = added.attr[key]
            value.CopyFrom(node.attr[key])
            for called in functions_in(value):
                own = [f for f in library if f.signature.name == called.name]
                for one in own:
                    called.name, _ = add_by_content(one, library)


def renamed(reference: str, names: Mapping[str, str]) -> str:
    """Returns a reference or control dependency with its node's new name."""
    name = node_name(reference)
    return reference.replace(name, names[name], 1)


def _is_read(attribute: str) -> bool:
    """Whether XLA reads an attribute that the operation doesn't define."""
    return attribute.lower().startswith("_xla")


def functions_in(
    value: attr_value_pb2.AttrValue,
) -> Iterator[attr_value_pb2.NameAttrList]:
    """Yields the functions that an attribute names."""
    if value.WhichOneof("value") == "func":
        yield value.func
    elif value.WhichOneof("value") == "list":
        yield from value.list.func
