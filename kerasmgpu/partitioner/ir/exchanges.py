"""Communication of tables whose rows are sharded: uneven all-to-alls."""

import dataclasses
from typing import ClassVar

from kerasmgpu.partitioner.ir.instructions import Communication, Sent
from kerasmgpu.partitioner.mesh import Mesh
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
