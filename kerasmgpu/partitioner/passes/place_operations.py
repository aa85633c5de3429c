"""Decides which operations run on each replica, and which once for all.

It also lists those that wait for the batch: at the end of the data no batch
comes, the step fails, and it must have had no side effect.
"""

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import (
    Alias,
    AllGather,
    AllReduce,
    Instruction,
    Operation,
    Runs,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.records import Trait


def place_operations(program: Lowered) -> None:
    """Sets `runs` and `home` of operations, and `after_batch` of the program.

    Also sets regions' `is_copied`, and their bodies' `copied`. Regions must be
    placed before; see `place_regions`.
    """
    placing = _Placing(program)
    for instruction in program.instructions:
        placing.place(instruction)
    has_others = program.mesh.total > program.mesh.num
    program.after_batch = {
        node
        for node in program.graph.nodes
        if _has_effect(node) or has_others and _reads_variables(node)
    }


def _has_effect(node: Node) -> bool:
    return bool(node.bodies) or (
        node.is_stateful and Trait.READ_ONLY not in node.traits
    )


def _reads_variables(node: Node) -> bool:
    """Whether a node takes a variable, whose value workers can send each other.

    It waits for the batch then: a collective that only some workers have
    started when the step fails breaks those of later steps.
    """
    return any(tensor.dtype == tf.resource for tensor in node.inputs)


def _home(node: Node) -> int:
    """Returns the place of a node that runs once: replica 0, or the host."""
    for tensor in (*node.inputs, *node.outputs):
        dtype = tensor.dtype
        if dtype.is_floating or dtype.is_complex or dtype == tf.resource:
            return 0
    return HOST


class _Placing:
    """Places operations, and tracks values with one reference per replica."""

    def __init__(self, program: Lowered) -> None:
        self._mesh = program.mesh
        # Each line of a mesh axis sums and gathers by itself.
        self._has_lines = (
            self._mesh.num_axes > 1 and not self._mesh.shares_memory
        )
        self._copied = set(program.copied)
        self._assigned: set[Tensor] = {
            node.inputs[1]
            for node in program.graph.nodes
            if Trait.ASSIGNS in node.traits
        }

    def place(self, instruction: Instruction) -> None:
        if isinstance(instruction, Operation):
            instruction.runs = self._runs(instruction)
            if instruction.runs is Runs.ONCE:
                instruction.home = _home(instruction.node)
            else:
                self._note(instruction.outputs)
        elif isinstance(instruction, Region):
            self._place_region(instruction)
        elif isinstance(instruction, AllReduce):
            if self._mesh.sums_are_copies or self._has_lines:
                self._note(instruction.outputs)
        elif isinstance(instruction, AllGather):
            if self._mesh.gathers_are_copies or self._has_lines:
                self._note(instruction.outputs)
        elif isinstance(instruction, Alias):
            if self._is_copied(instruction.inputs[0]):
                self._note(instruction.outputs)

    def _runs(self, operation: Operation) -> Runs:
        node, inputs = operation.node, operation.inputs
        if node.type == "NoOp" or operation.is_local:
            return Runs.ON_EACH
        if Trait.COPIED in node.traits and self._is_copied(inputs[0]):
            return Runs.ON_EACH
        # A stack of variables' new values is sent whole, and unpacked there.
        if node.type == "Unpack" and node.outputs[0] in self._assigned:
            return Runs.ON_EACH
        if (
            Trait.COPIED not in node.traits
            and Trait.ELEMENTWISE in node.traits
            and not self._mesh.shares_memory
            and any(map(self._is_copied, inputs))
        ):
            return Runs.ON_COPIES
        return Runs.ONCE

    def _place_region(self, region: Region) -> None:
        inside = region.bodies[0].mesh
        region.is_copied = tuple(
            inside.num > 1 and self._is_copied(one) for one in region.inputs
        )
        carried = region.is_copied[0 if region.is_loop else 1 :]
        for body in region.bodies:
            given = zip(body.given, carried)
            body.copied = frozenset(one for one, copied in given if copied)
            place_operations(body)
        if region.runs is Runs.TOGETHER:
            several = region.is_copied
            if not region.is_loop:
                several = tuple(one.is_local for one in region.outputs)
            self._note(
                tuple(o for o, copied in zip(region.outputs, several) if copied)
            )

    def _note(self, made: tuple[Value, ...]) -> None:
        if self._mesh.num > 1:
            self._copied.update(made)

    def _is_copied(self, one: Value) -> bool:
        return one in self._copied or (self._mesh.num > 1 and one.is_local)
