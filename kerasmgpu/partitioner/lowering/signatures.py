"""Completes attributes of operations from their inputs and definitions.

An `OpDef` says which attribute is the type of an input, the number of tensors
in a list of inputs, or the list of their types, and which attributes have a
default.
"""

import functools
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2

from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.definitions import (
    attribute_value,
    function_attribute,
    functions_attribute,
)


class Signature(NamedTuple):
    """An operation on inputs of some types.

    Attributes:
        definition: `NodeDef` with all its attributes.
        outputs: Name and type of each output: `("sum:0", tf.float32)`.
        is_stateful: Whether its operation is declared stateful.
    """

    definition: node_def_pb2.NodeDef
    outputs: Sequence[tuple[str, tf.DType]]
    is_stateful: bool


@functools.lru_cache(maxsize=4096)
def signature(
    type: str,
    types: tuple[tf.DType, ...],
    attributes: tuple[tuple[str, Hashable], ...] = (),
) -> Signature:
    """Completes the attributes of an operation.

    Args:
        attributes: Names and values of attributes that neither the inputs nor
            the defaults determine. A function is passed by its name.

    Raises:
        TypeError: If the operation takes no such inputs, or an attribute is
            missing.
    """
    operation = graphs.op_definition(type)
    kinds = {attribute.name: attribute.type for attribute in operation.attr}
    node = node_def_pb2.NodeDef(op=type)
    for name, given in attributes:
        node.attr[name].CopyFrom(_value(kinds.get(name), given))
    _add_those_of_inputs(operation, node, list(types))
    for attribute in operation.attr:
        if attribute.name in node.attr:
            continue
        if not attribute.HasField("default_value"):
            raise TypeError(
                f"{type} needs its attribute {attribute.name!r}: inputs of "
                f"{_listed(types)} don't say it, and it has no default."
            )
        # An empty string or list is the same as none.
        if _says_something(attribute.default_value):
            node.attr[attribute.name].CopyFrom(attribute.default_value)
    return Signature(node, graphs.outputs_of(node), operation.is_stateful)


def _value(kind: str | None, given: Any) -> attr_value_pb2.AttrValue:
    """Converts a value to an attribute; `kind` is its type, such as `"func"`."""
    if kind == "func":
        return function_attribute(given)
    if kind == "list(func)":
        return functions_attribute(given)
    return attribute_value(given)


def _add_those_of_inputs(
    operation: Any, node: node_def_pb2.NodeDef, types: list[tf.DType]
) -> None:
    """Sets the attributes of a `NodeDef` that its inputs' types determine.

    Raises:
        TypeError: If the operation takes other inputs.
    """
    first = 0
    for argument, count in zip(
        operation.input_arg, _counts(operation, node, types)
    ):
        given = types[first : first + count]
        first += count
        if argument.number_attr:
            node.attr[argument.number_attr].i = count
        wanted = _wanted(argument, node, given)
        if given != wanted:
            raise TypeError(
                f"{operation.name} takes its input {argument.name!r} of type "
                f"{_listed(wanted)}. Received: {_listed(given)}."
            )


def _wanted(
    argument: Any, node: node_def_pb2.NodeDef, given: list[tf.DType]
) -> list[tf.DType]:
    """Returns the types an argument takes; adds a missing attribute to `node`."""
    name = argument.type_list_attr or argument.type_attr
    if argument.type_list_attr:
        if name not in node.attr:
            node.attr[name].CopyFrom(attribute_value(given))
        return list(map(tf.as_dtype, node.attr[name].list.type))
    if not given:
        return []
    if name and name not in node.attr:
        node.attr[name].CopyFrom(attribute_value(given[0]))
    number = node.attr[name].type if name else argument.type
    return [tf.as_dtype(number)] * len(given)


def _counts(
    operation: Any, node: node_def_pb2.NodeDef, types: list[tf.DType]
) -> list[int]:
    """Returns how many inputs each argument of an operation takes.

    Lists of a length that no attribute gives share the remaining inputs
    equally.

    Raises:
        TypeError: If the number of inputs doesn't fit.
    """
    counts = [_known_count(one, node) for one in operation.input_arg]
    lists = [
        one.number_attr or one.type_list_attr
        for one, count in zip(operation.input_arg, counts)
        if count is None
    ]
    rest = len(types) - sum(count or 0 for count in counts)
    each = rest // len(lists) if lists else 0
    minimum = {one.name: one.minimum for one in operation.attr}
    if rest != each * len(lists) or any(each < minimum[n] for n in lists):
        names = ", ".join(one.name for one in operation.input_arg) or "nothing"
        raise TypeError(
            f"{operation.name} takes {names}. "
            f"Received: {len(types)} inputs of type {_listed(types)}."
        )
    return [each if count is None else count for count in counts]


def _known_count(argument: Any, node: node_def_pb2.NodeDef) -> int | None:
    """Returns how many inputs an argument takes; `None` if not known yet."""
    if argument.number_attr:
        known = node.attr.get(argument.number_attr)
        return None if known is None else known.i
    if argument.type_list_attr:
        known = node.attr.get(argument.type_list_attr)
        return None if known is None else len(known.list.type)
    return 1


def _says_something(default: attr_value_pb2.AttrValue) -> bool:
    field = default.WhichOneof("value")
    if field == "list":
        return bool(default.list.ListFields())
    return field != "s" or bool(default.s)


def _listed(types: Sequence[tf.DType]) -> str:
    return ", ".join(one.name for one in types) or "nothing"
