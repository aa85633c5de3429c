"""Marks tensors of the one-device step that a program lays out on a mesh.

A mark is an `Identity` with an attribute of its own. TensorFlow ignores
attributes whose names begin with an underscore (2.18 to 2.21), and keeps them.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from kerasmgpu.partitioner.step.graph import Node

_LAYOUT = "_kerasmgpu_layout"
_NAME = "_kerasmgpu_laid_out"


def laid_out(
    tensor: tf.Tensor, axes: Sequence[int | None], name: str = ""
) -> tf.Tensor:
    """Returns a tensor with a mark, in the graph that is being traced.

    Args:
        axes: For each axis of the mesh, the axis of the tensor that is divided
            along it, or `None`.
        name: What the tensor is, for messages; see `varying_lengths`.
    """
    made = tf.identity(tensor, name="layout")
    attributes = layout_attributes(axes)
    if _varying(axes, made.shape):
        attributes[_NAME] = attr_value_pb2.AttrValue(s=name.encode())
    for key, value in attributes.items():
        made.op._set_attr(key, value)
    return made


def layout_attributes(axes: Sequence[int | None]) -> dict[str, Any]:
    """Returns the attributes of a mark's `Identity`; for `axes` see `laid_out`."""
    value = attr_value_pb2.AttrValue()
    value.list.i.extend(-1 if axis is None else axis for axis in axes)
    return {_LAYOUT: value}


def layout_of(node: Node) -> list[int | None] | None:
    """Returns the `axes` of `laid_out`; `None` for a node that is no mark."""
    axes: list[int] | None = node.attr(_LAYOUT)
    if axes is None:
        return None
    return [None if axis < 0 else axis for axis in axes]


def varying_lengths(node: Node) -> tuple[str, dict[int, int]]:
    """Returns which axes that a node lays out have a length that varies.

    Rows, the first axis, don't count.

    Returns:
        `(name, {mesh_axis: axis})`; `name` is that of `laid_out`.
    """
    if node.attr(_NAME) is None:
        return "", {}
    axes, shape = layout_of(node), tf.TensorShape(node.outputs[0].static)
    return node.attr(_NAME), _varying(axes or (), shape)


def _varying(
    axes: Sequence[int | None], shape: tf.TensorShape
) -> dict[int, int]:
    return {
        number: axis
        for number, axis in enumerate(axes)
        if axis and shape.rank and shape[axis] is None
    }
