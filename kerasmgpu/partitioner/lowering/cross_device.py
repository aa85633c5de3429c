"""Communication by the user's `tf.distribute.CrossDeviceOps`.

Its all-reduce is traced as a function of the replicas' partial values; the
nodes are copied into the written function.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils, values
from tensorflow.python.framework import func_graph as func_graphs

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.step import graph as graphs
from kerasmgpu.partitioner.step.references import Reference


class CrossDeviceReplicas(Replicas):
    """Replicas of one process that sum by the user's `CrossDeviceOps`.

    Other communication is that of `Replicas`.

    Args:
        mesh: Their `mesh.Mesh`; `sums_are_copies` is set here.

    Raises:
        InputError: For `HierarchicalCopyAllReduce` and an odd number of
            devices above 1.
    """

    def __init__(
        self, mesh: Mesh, operations: tf.distribute.CrossDeviceOps
    ) -> None:
        super().__init__(dataclasses.replace(mesh, sums_are_copies=True))
        by_halves = isinstance(
            operations, tf.distribute.HierarchicalCopyAllReduce
        )
        if by_halves and mesh.num > 1 and mesh.num % 2:
            raise InputError(
                "HierarchicalCopyAllReduce needs an even number of replicas: "
                "its sums omit one of an odd number. Received: "
                f"{mesh.num} replicas; use an even number or another "
                "all-reduce."
            )
        self._operations = operations

    def _sums(
        self,
        build: Function,
        tensors: Sequence[graphs.Tensor],
        parts: Sequence[Sequence[Reference]],
    ) -> list[list[Reference]]:
        totals: dict[int, list[Reference]] = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            numbers = [
                n for n, tensor in enumerate(tensors) if tensor.dtype == dtype
            ]
            shapes = [_static_shape(tensors[n]) for n in numbers]
            sums = self._sums_of_type(
                build, dtype, shapes, [parts[n] for n in numbers]
            )
            totals.update(zip(numbers, sums))
        return [totals[number] for number in range(len(tensors))]

    def _sums_of_type(
        self,
        build: Function,
        dtype: tf.DType,
        shapes: Sequence[list[int | None] | None],
        parts: Sequence[Sequence[Reference]],
    ) -> list[list[Reference]]:
        """Writes the all-reduce of tensors of one type.

        Args:
            shapes: Their static shapes; `None` for an unknown rank.
            parts: For each tensor, references by replica.

        Returns:
            For each tensor, references by replica.
        """
        traced = func_graphs.func_graph_from_py_func(
            "all_reduce",
            lambda *tensors: self._all_reduce(tensors),
            [
                [tf.TensorSpec(shape, dtype) for _ in self.mesh.devices]
                for shape in shapes
            ],
            {},
        )
        arguments = iter(ref for references in parts for ref in references)
        references: dict[str, Reference] = {}  # By the tensor's name.
        names: dict[str, str] = {}  # By the operation's name.
        for tensor in traced.inputs:
            outer = dict((id(i), o) for o, i in traced.captures).get(id(tensor))
            references[tensor.name] = (
                next(arguments) if outer is None else build.captured(outer)
            )
        for op in traced.get_operations():
            if op.type == "Placeholder":
                continue
            node = graphs.new_node(op.type, op.name, op.node_def)
            node.outputs = [
                graphs.Tensor(node, number, tensor.dtype)
                for number, tensor in enumerate(op.outputs)
            ]
            outputs = build.writer.copy(
                node,
                [references[tensor.name] for tensor in op.inputs],
                op.device or self.mesh.devices[0],
                "all_reduce/",
                [
                    names[control.name]
                    for control in op.control_inputs
                    if control.name in names
                ],
            )
            names[op.name] = build.writer.last
            for tensor, reference in zip(op.outputs, outputs):
                references[tensor.name] = reference
        results = iter(references[tensor.name] for tensor in traced.outputs)
        return [[next(results) for _ in self.mesh.devices] for _ in shapes]

    def _all_reduce(
        self, values_by_replica: Sequence[Sequence[tf.Tensor]]
    ) -> list[list[tf.Tensor]]:
        """Calls the user's all-reduce; returns each tensor's sums by replica."""
        pairs = []
        for tensors in values_by_replica:
            parts = []
            for device, tensor in zip(self.mesh.devices, tensors):
                with tf.device(device):
                    parts.append(tf.identity(tensor))
            value = distribute_utils.regroup(
                tuple(parts), wrap_class=values.PerReplica
            )
            pairs.append((value, value))
        sums = self._operations.batch_reduce(tf.distribute.ReduceOp.SUM, pairs)
        return [list(total.values) for total in sums]


def _static_shape(tensor: graphs.Tensor) -> list[int | None] | None:
    """Returns the static shape of a tensor; `None` if its rank is unknown."""
    if tensor.shape is None:
        return None
    return [size if isinstance(size, int) else None for size in tensor.shape]
