"""Partitions a function of one device into one that N replicas run together.

Rooms, each of which imports only from those above it (`tests/test_import.py`):

    step/        the trace of one device as a graph: symbolic sizes, order of
                 effects, records of operations, and places
    rules/       how each operation handles rows: kinds, plans, costs
    mesh.py      the replicas as data: their devices, and shares of rows
    planning/    infers shapes and values; chooses each tensor's kind
    ir/          programs: operations and communication as instructions
    passes/      lower the plan to a program that can be written
    lowering/    writes a program as a `FunctionDef`: writers of operations and
                 sizes, communicators, loops, micro-batches' turns, XLA clusters
    runtime/     traces, variables, calls of programs, loops over steps, reports

`docs/partition.md` describes each step, and how to add a rule. The partitioner
uses TensorFlow, and nothing of Keras.
"""

from kerasmgpu import _import_on_use

_import_on_use(__name__)
