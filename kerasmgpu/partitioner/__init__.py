"""A function of one device becomes the function that N replicas run together.

Rooms, each of which imports only from those above it (`tests/test_import.py`):

    step/        the trace of one device as a graph: sizes by symbol, the order of
                 effects, what is declared of operations, and places
    rules/       how each operation handles rows: kinds, plans, costs
    mesh.py      the replicas as data: their devices, and shares of rows
    planning/    infers shapes and values; chooses each tensor's kind
    ir/          programs: operations and communication as instructions
    passes/      from the plan to a program that can be written
    lowering/    writes a program as a `FunctionDef`: writers of operations and
                 sizes, communicators, loops, micro-batches' turns, XLA clusters
    runtime/     traces, variables, programs, what calls and repeats them, reports

`docs/partition.md` says what happens in each step, and how a rule is added. It
knows TensorFlow and nothing of Keras.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
