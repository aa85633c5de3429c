"""The program between the plan and the `FunctionDef`.

    instructions.py  typed instructions; communication is instructions, too
    exchanges.py     those of tables whose rows are sharded
    micro_batches.py those of shares that take turns on a device
    sent_types.py    what collectives send at once, and in which type
    lowered.py       a program: instructions in order, of a function or a body
    printing.py      a program as text

A value is a tensor of the one-device step in one placement, and a program says
which instruction makes which value from which others. Passes
(`kerasmgpu.partitioner.passes`) rewrite programs; `emission.py` writes one
operation by operation, and decides nothing.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
