"""Instructions of programs whose shares are micro-batches.

Several shares of the rows have one device, and take turns on it. What a device
has once (a copy of a variable, its part of a sum) is written as a value whose
references are equal for all micro-batches of the device.
"""

import dataclasses

from kerasmgpu.partitioner.ir.instructions import Instruction


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
