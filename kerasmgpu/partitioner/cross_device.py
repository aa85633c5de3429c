"""Replicas whose sums go through a `tf.distribute.CrossDeviceOps` of the user.

What it writes is traced once, as a function of the replicas' parts, and copied.
"""

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils, values
from tensorflow.python.framework import func_graph as func_graphs

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner import graph as graphs
from kerasmgpu.partitioner.replicas import Replicas


class CrossDeviceReplicas(Replicas):
    """Replicas of one process with an all-reduce of the user's choice.

    Args:
        devices: Full names of their devices.
        host: Full name of the CPU.
        operations: `tf.distribute.CrossDeviceOps`.

    Raises:
        InputError: If the operations leave out a device.
    """

    def __init__(self, devices, host, operations):
        super().__init__(devices, host)
        by_halves = isinstance(
            operations, tf.distribute.HierarchicalCopyAllReduce
        )
        if by_halves and self.num > 1 and self.num % 2:
            raise InputError(
                "HierarchicalCopyAllReduce sums two halves of the devices and "
                f"leaves out one of an odd number. Received: {self.num} "
                "replicas; use another all-reduce or an even number."
            )
        self._operations = operations
        self.sums_are_copies = True

    def _sums(self, build, tensors, parts):
        totals = {}
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            numbers = [
                n for n, tensor in enumerate(tensors) if tensor.dtype == dtype
            ]
            shapes = [_static(tensors[n]) for n in numbers]
            sums = self._of_a_type(
                build, dtype, shapes, [parts[n] for n in numbers]
            )
            totals.update(zip(numbers, sums))
        return [totals[number] for number in range(len(tensors))]

    def _of_a_type(self, build, dtype, shapes, parts):
        """Sums of tensors of one type, by the operations of the user."""
        traced = func_graphs.func_graph_from_py_func(
            "all_reduce",
            lambda *given: self._all_reduce(given),
            [
                [tf.TensorSpec(shape, dtype) for _ in self.devices]
                for shape in shapes
            ],
            {},
        )
        given = iter(ref for references in parts for ref in references)
        written = {}
        for tensor in traced.inputs:
            outer = dict((id(i), o) for o, i in traced.captures).get(id(tensor))
            written[tensor.name] = (
                next(given) if outer is None else build.captured(outer)
            )
        for op in traced.get_operations():
            if op.type == "Placeholder":
                continue
            node = graphs.new_node(op.type, op.name, op.node_def)
            made = build.writer.copy(
                node,
                [written[tensor.name] for tensor in op.inputs],
                op.device or self.devices[0],
                "all_reduce/",
                [
                    name
                    for control in op.control_inputs
                    for name in written.get(control.name, ())
                ],
            )
            written[op.name] = [build.writer.last]
            for tensor, reference in zip(op.outputs, made):
                written[tensor.name] = reference
        outputs = iter(written[tensor.name] for tensor in traced.outputs)
        return [[next(outputs) for _ in self.devices] for _ in shapes]

    def _all_reduce(self, given):
        pairs = []
        for tensors in given:
            parts = []
            for device, tensor in zip(self.devices, tensors):
                with tf.device(device):
                    parts.append(tf.identity(tensor))
            value = distribute_utils.regroup(
                tuple(parts), wrap_class=values.PerReplica
            )
            pairs.append((value, value))
        sums = self._operations.batch_reduce(tf.distribute.ReduceOp.SUM, pairs)
        return [list(total.values) for total in sums]


def _static(tensor):
    """The shape of a tensor as TensorFlow knows it."""
    if tensor.shape is None:
        return None
    return [size if isinstance(size, int) else None for size in tensor.shape]
