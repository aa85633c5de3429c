"""Instructions of programs whose shares are micro-batches.

Several shares of the rows have one device, and take turns on it. What a device
has once (a copy of a variable, its part of a sum) is written as a value whose
references are equal for all micro-batches of the device.
"""

import dataclasses
from typing import ClassVar

from kerasmgpu.partitioner.graph import Node
from kerasmgpu.partitioner.ir.instructions import (
    Communication,
    Instruction,
    Sent,
)
from kerasmgpu.partitioner.rules.table import Plan


@dataclasses.dataclass(eq=False)
class MicroBatchRows(Instruction):
    """Each micro-batch's rows, cut out of what its device was passed."""


@dataclasses.dataclass(eq=False)
class Accumulate(Instruction):
    """Each device's part of a sum: its micro-batches' parts, added in turn.

    Attributes:
        by: `"sum"`, `"max"`, `"min"`, `"all"` or `"any"`.
    """

    by: str


@dataclasses.dataclass(eq=False)
class FirstMicroBatchOnly(Instruction):
    """A device's part of a sum, or of a variable, held by its first micro-batch.

    The others hold zeros, or nothing.
    """


@dataclasses.dataclass(eq=False)
class LookUp(Communication):
    """Rows of a sharded table, which each micro-batch gets in its turn.

    The numbers of its rows are gathered, each device looks up those that it
    owns, and a reduce-scatter brings the vectors to the device that wants them.

    Attributes:
        node: The `graph.Node` of the look-up: `(table, numbers, …)`.
        plan: Its `rules.table.Plan`.
    """

    node: Node
    plan: Plan
    name: ClassVar[str] = "look_up"

    def sizes(self) -> list[Sent]:
        sent = (self.inputs[1].tensor, self.outputs[0].tensor)
        return [(one, one.num_elements, one.dtype.size) for one in sent]
