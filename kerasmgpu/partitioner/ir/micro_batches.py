"""Instructions of programs whose shares are micro-batches.

Each device has several shares of the rows, which take turns on it. A value that
a device has once (a copy of a variable, its part of a sum) has the same
reference for all micro-batches of the device.
"""

import dataclasses

from kerasmgpu.partitioner.ir.instructions import Instruction


@dataclasses.dataclass(eq=False)
class MicroBatchRows(Instruction):
    """Cuts each micro-batch's rows out of those that its device was passed."""


@dataclasses.dataclass(eq=False)
class Accumulate(Instruction):
    """Merges the parts of each device's micro-batches into one, turn by turn.

    Attributes:
        by: `"sum"`, `"max"`, `"min"`, `"all"` or `"any"`.
    """

    by: str


@dataclasses.dataclass(eq=False)
class FirstMicroBatchOnly(Instruction):
    """Leaves a device's part of a sum or variable to its first micro-batch.

    Its other micro-batches hold zeros of a sum, and no rows of a variable.
    """
