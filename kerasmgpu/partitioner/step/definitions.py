"""Node definitions (`NodeDef`): attributes, names and references."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2, op_def_pb2

XLA_MUST_COMPILE = "_XlaMustCompile"
"""Attribute of functions that XLA compiles, and of their calls."""

Attributes = Mapping[str, Any]
"""Attributes of an operation by name; see `attribute_value` for their types."""


def is_cluster(node: node_def_pb2.NodeDef) -> bool:
    """Whether a `NodeDef` calls a function that XLA compiles."""
    if not node.op.endswith("PartitionedCall"):
        return False
    return XLA_MUST_COMPILE in node.attr and node.attr[XLA_MUST_COMPILE].b


def set_attributes(
    definition: node_def_pb2.NodeDef, attributes: Attributes
) -> None:
    """Sets attributes of a `NodeDef`."""
    for name, value in attributes.items():
        definition.attr[name].CopyFrom(attribute_value(value))


def attribute_value(value: Any) -> attr_value_pb2.AttrValue:
    """Converts a value to an `AttrValue`.

    Args:
        value: A `tf.DType`, boolean, integer, float, string, bytes, list or
            tuple of types or of integers, `TensorProto` or `AttrValue`.

    Raises:
        TypeError: For any other type.
    """
    if isinstance(value, attr_value_pb2.AttrValue):
        return value
    result = attr_value_pb2.AttrValue()
    if isinstance(value, tf.DType):
        result.type = value.as_datatype_enum
    elif isinstance(value, bool):
        result.b = value
    elif isinstance(value, int):
        result.i = value
    elif isinstance(value, float):
        result.f = value
    elif isinstance(value, str):
        result.s = value.encode()
    elif isinstance(value, bytes):
        result.s = value
    elif isinstance(value, (list, tuple)):
        result.list.SetInParent()
        for item in value:
            if isinstance(item, tf.DType):
                result.list.type.append(item.as_datatype_enum)
            elif isinstance(item, int):
                result.list.i.append(item)
            else:
                raise _no_attribute(value)
    elif hasattr(value, "tensor_shape"):
        result.tensor.CopyFrom(value)
    else:
        raise _no_attribute(value)
    return result


def _no_attribute(value: Any) -> TypeError:
    return TypeError(
        "An attribute is a type, boolean, number, string, tensor or list. "
        f"Received: {value!r}."
    )


def function_attribute(name: str) -> attr_value_pb2.AttrValue:
    """Converts the name of a function to an `AttrValue`."""
    value = attr_value_pb2.AttrValue()
    value.func.name = name
    return value


def functions_attribute(names: Sequence[str]) -> attr_value_pb2.AttrValue:
    """Converts names of functions to an `AttrValue`."""
    value = attr_value_pb2.AttrValue()
    for name in names:
        value.list.func.add().name = name
    return value


def argument(name: str, dtype: tf.DType) -> op_def_pb2.OpDef.ArgDef:
    """Returns an `ArgDef`: an input or output of a function's signature."""
    return op_def_pb2.OpDef.ArgDef(name=name, type=dtype.as_datatype_enum)


def node_name(reference: str) -> str:
    """Returns the name of the node in a reference or a control dependency."""
    return reference.removeprefix("^").split(":", 1)[0]
