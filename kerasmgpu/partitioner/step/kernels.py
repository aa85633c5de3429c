"""Which kernels TensorFlow has for an operation, on devices that needn't exist.

TensorFlow's wheel for Linux is built for CUDA: it lists kernels of GPUs on every
machine. That list isn't public; `get_registered_kernels_for_op` was checked on
TensorFlow 2.18 to 2.21.
"""

import dataclasses
import functools
from collections.abc import Collection, Mapping

import tensorflow as tf
from tensorflow.core.framework import node_def_pb2, op_def_pb2
from tensorflow.python.framework import kernels

from kerasmgpu.partitioner.step import graph as graphs

_ANY_DEVICE = "DEFAULT"


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel of a type of operation.

    Attributes:
        device_type: `"CPU"`, `"GPU"`, `"DEFAULT"` (all devices but CPUs, where
            there is none of the device's own) or one of XLA's.
        types: For each attribute that it restricts, the types that it takes.
        on_host: Names of inputs and outputs that are in host memory.
    """

    device_type: str
    types: Mapping[str, Collection[int]]
    on_host: frozenset[str]

    def takes(self, node: node_def_pb2.NodeDef) -> bool:
        """Whether it is made for the types of a node."""
        return all(
            set(_types(node, name)) <= set(allowed)
            for name, allowed in self.types.items()
        )


def kernel_of(
    node: node_def_pb2.NodeDef, device_type: str = "GPU"
) -> Kernel | None:
    """Returns the kernel that runs a node on a kind of device, or `None`."""
    is_xla = device_type.startswith("XLA")
    for wanted in (device_type,) if is_xla else (device_type, _ANY_DEVICE):
        for kernel in _kernels(node.op, is_xla):
            if kernel.device_type == wanted and kernel.takes(node):
                return kernel
    return None


def has_kernels(type: str, device_type: str) -> bool:
    """Whether a kind of device has a kernel for an operation, of any types."""
    listed = _kernels(type, device_type.startswith("XLA"))
    return any(one.device_type == device_type for one in listed)


def input_names(node: node_def_pb2.NodeDef) -> list[str]:
    """Returns the name of each input: once for each tensor of a list."""
    return _names(node, graphs.op_definition(node.op).input_arg)


def output_names(node: node_def_pb2.NodeDef) -> list[str]:
    """Returns the name of each output, likewise."""
    return _names(node, graphs.op_definition(node.op).output_arg)


def _names(
    node: node_def_pb2.NodeDef, arguments: Collection[op_def_pb2.OpDef.ArgDef]
) -> list[str]:
    names = []
    for one in arguments:
        number = 1
        if one.number_attr:
            number = node.attr[one.number_attr].i
        elif one.type_list_attr:
            number = len(node.attr[one.type_list_attr].list.type)
        names += [one.name] * number
    return names


def _types(node: node_def_pb2.NodeDef, name: str) -> list[int]:
    """Returns the types of an attribute; empty without it."""
    if name not in node.attr:
        return []
    value = node.attr[name]
    return list(value.list.type) if value.list.type else [value.type]


@functools.cache
def _kernels(type: str, with_xla: bool) -> list[Kernel]:
    """Returns the kernels that run without being asked for by a label.

    Args:
        with_xla: Whether XLA's are registered first.
    """
    if with_xla:
        _register_xla()
    return [
        Kernel(
            one.device_type,
            {
                each.name: tuple(each.allowed_values.list.type)
                for each in one.constraint
            },
            frozenset(one.host_memory_arg),
        )
        for one in kernels.get_registered_kernels_for_op(type).kernel
        if not one.label
    ]


@functools.cache
def _register_xla() -> None:
    """Registers XLA's kernels: its first compilation does."""
    with tf.init_scope():
        tf.function(lambda x: x + 1.0, jit_compile=True)(0.0)
