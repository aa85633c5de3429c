"""The program between the plan and the `FunctionDef`.

    instructions.py  typed instructions: operations and communication
    exchanges.py     instructions for tables whose rows are sharded
    micro_batches.py instructions for shares that take turns on a device
    sent_types.py    sizes and types in which collectives send
    lowered.py       a program: instructions in order, of a function or a body
    printing.py      a program as text

A value is a tensor of the one-device step in one placement, and a program says
which instruction makes which value from which others. Passes
(`kerasmgpu.partitioner.passes`) rewrite programs; `emission.py` writes a
program instruction by instruction, and decides nothing.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
