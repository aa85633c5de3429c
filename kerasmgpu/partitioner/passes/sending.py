"""Tells what a planned graph sends, without lowering all of it.

A search of layouts asks that of hundreds of plans. Most values are needed as they
are made; only the others are lowered.
"""

from collections.abc import Iterator

from kerasmgpu.partitioner.ir.instructions import (
    Communication,
    Instruction,
    Value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, bodies_of
from kerasmgpu.partitioner.passes import instruction_of
from kerasmgpu.partitioner.passes.group_sums import levels
from kerasmgpu.partitioner.passes.lower_reshards import Lowering
from kerasmgpu.partitioner.passes.order_gathers import gather_again
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.step.graph import Node, Tensor


def sent_by(program: Lowered) -> Iterator[Communication]:
    """Yields what a planned graph sends, also in loops and branches.

    It is that of the lowered program, before any is merged. In a job of several
    workers more may be sent.

    Args:
        program: A program whose instructions aren't looked at.
    """
    lower_what_is_sent(program)
    gather_again(program)
    yield from program.communication()


def lower_what_is_sent(program: Lowered) -> None:
    """Makes the instructions that send, of the bodies of loops and branches, too.

    Instructions without outputs stand for operations that need what they make.
    """
    given = {one.tensor: one.placement for one in program.given}
    made = dict(given)
    planned = [of_axis.nodes for of_axis in program.plans]

    def is_made(tensor: Tensor) -> bool:
        """Whether it isn't a known size: these are on all replicas."""
        return tensor in given or not is_known(tensor.node)

    needed: list[tuple[Node, list[Value], bool]] = []
    found = levels(program.graph, program.plans)
    for node in sorted(program.graph.nodes, key=found.__getitem__):
        if node.type in ("Input", "Const"):
            continue  # Constants are on all replicas.
        plans = [of_axis[node] for of_axis in planned]
        wanted = [
            Value(tensor, placement)
            for tensor, placement in zip(
                node.inputs, zip(*[plan.wants for plan in plans])
            )
            if made.get(tensor, placement) != placement
        ]
        wanted = [one for one in wanted if is_made(one.tensor)]
        made.update(zip(node.outputs, zip(*[plan.gives for plan in plans])))
        sends = bool(node.bodies) or any(map(tables.is_exchanged, plans))
        if sends or wanted and not is_known(node):
            needed.append((node, wanted, sends))
    outputs = [
        one
        for one in program.outputs
        if made.get(one.tensor, one.placement) != one.placement
        and is_made(one.tensor)
    ]
    lowering = _Sending(program)
    lowering.needed.update(one for _, wanted, _ in needed for one in wanted)
    lowering.needed.update(outputs)
    for node, wanted, sends in needed:
        for one in wanted:
            lowering.want(one)
        instruction = Instruction(tuple(wanted), ())
        if sends:
            instruction = instruction_of(node, program)
        lowering.add(instruction)
        for body in bodies_of(instruction):
            lower_what_is_sent(body)
    for one in outputs:
        lowering.want(one)
    program.instructions = lowering.instructions


class _Sending(Lowering):
    """Lowering where operations that make values have no instruction."""

    def is_made(self, one: Value) -> bool:
        return super().is_made(one) or one == self.source_of(one.tensor)

    def source_of(self, tensor: Tensor) -> Value | None:
        node, found = tensor.node, super().source_of(tensor)
        if found is not None or node.type == "Input" or is_known(node):
            return found
        if node.type == "Const":
            return self.program.whole(tensor)
        plans = [of_axis.nodes[node] for of_axis in self.program.plans]
        return Value(tensor, tuple(one.gives[tensor.index] for one in plans))
