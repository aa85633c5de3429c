"""Uneven all-to-alls: rows of sharded tables, and another axis that is divided."""

import dataclasses
from fractions import Fraction
from typing import ClassVar, cast

from kerasmgpu.partitioner.ir.instructions import Communication, Sent
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import Sharded
from kerasmgpu.partitioner.step.graph import Node


@dataclasses.dataclass(eq=False)
class LookUp(Communication):
    """Looks up rows of a sharded table, by each replica's row numbers.

    The numbers travel to the replicas that own the rows, and the rows come
    back. Micro-batches look up one after the other.

    Attributes:
        node: The `graph.Node` of the look-up: `(table, numbers, …)`.
        on_axis: The planning axis on which the table's rows are divided.
    """

    node: Node
    on_axis: int
    name: ClassVar[str] = "look_up"

    @property
    def axis(self) -> int:
        return self.on_axis

    def sizes(self, mesh: Mesh) -> list[Sent]:
        sent = (self.inputs[1], self.outputs[0])
        return [self.sent(one, one.tensor.dtype, mesh) for one in sent]


@dataclasses.dataclass(eq=False)
class ToOwners(Communication):
    """Sends updates of a table's rows, or row numbers, to the rows' owners.

    Its inputs are the tensor that is sent, and the numbers of the rows.
    """

    name: ClassVar[str] = "to_owners"

    def sizes(self, mesh: Mesh) -> list[Sent]:
        one = self.inputs[0]
        return [self.sent(one, one.tensor.dtype, mesh)]


@dataclasses.dataclass(eq=False)
class AllToAll(Communication):
    """Divides a value along another of its axes: `[rows / N, …]` to `[…, units / N]`.

    Each replica sends every other the part that it wants. Shares are fixed.
    """

    name: ClassVar[str] = "all_to_all"

    def sizes(self, mesh: Mesh) -> list[Sent]:
        (one,), (made,) = self.inputs, self.outputs
        before, after = (
            [
                Fraction(end - start, cast(int, kind.size))
                for start, end in mesh.ranges(kind)
            ]
            for kind in (
                cast(Sharded, value.placement[self.axis])
                for value in (one, made)
            )
        )
        moved = 1 - sum(held * kept for held, kept in zip(before, after))
        tensor, elements, each = self.sent(one, one.tensor.dtype, mesh)
        return [(tensor, elements, each * moved / len(before))]
