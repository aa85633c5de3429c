"""Each operation is declared once, and named where it is declared."""

import ast
import pathlib

import pytest

import kerasmgpu.partitioner
import kerasmgpu.partitioner.rules
from kerasmgpu.partitioner.step import records

FOLDER = pathlib.Path(kerasmgpu.partitioner.__file__).parent

RULES = ("axes", "control", "facts", "plan", "shape", "value")

WRITERS = {"_new", "_op", "new_node", "op", "reduced"}
"""Functions to which the partitioner says which operation to write."""

EVERYWHERE = {"Const", "NoOp"}
"""Every graph has constants, and nodes that only hold orders together."""

ELSEWHERE = {
    # `_MERGE` says which operation to write for a reduction; a collective's
    # name in error lines.
    "collectives.py": {"Add", "Gather", "Max", "Min"},
    # Reductions that are made of an all-to-all.
    "communicators.py": {"Add", "Max", "Maximum", "Minimum"},
    "replicas.py": {"AddV2", "LogicalAnd", "LogicalOr", "Maximum", "Minimum"},
    # Rewrites updates of variables into sums and assignments.
    "updates.py": {
        "AddV2",
        "AssignAddVariableOp",
        "AssignSubVariableOp",
        "AssignVariableOp",
        "Sub",
    },
    # Which operations it writes out; tests of labels.
    "written_out.py": {
        "Cumsum",
        "GreaterEqual",
        "Less",
        "LogSoftmax",
        "Softmax",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
    },
    # Whether what was to be joined is several tensors.
    "operation_writer.py": {"ConcatV2"},
    # Stacks of several variables' new values, or gradients; see `updates.py`.
    "planner.py": {"Pack"},
    "costs.py": {"Pack"},
    # How the types of all calls end.
    "definitions.py": {"PartitionedCall"},
    "place_operations.py": {"Unpack"},
    "regions.py": {"Case"},
    # The operation that calls a function, which depends on oneDNN.
    "outlined.py": {"Case", "StatefulPartitionedCall"},
    # A look-up in a table is the same each time.
    "one_device_step.py": {"LookupTableFindV2"},
    # Writes operations of XLA clusters as others.
    "xla_replacements.py": {
        "BiasAddGrad",
        "Greater",
        "Maximum",
        "Relu",
        "ReluGrad",
        "SelectV2",
        "Sum",
    },
    # Notes what a cluster takes.
    "shape_recorder.py": {"Shape"},
    # How loops are written that have a known number of rounds.
    "loop_rounds.py": {
        "Add",
        "AddV2",
        "Less",
        "LogicalAnd",
        "TensorListFromTensor",
        "TensorListReserve",
    },
    # XLA draws normal numbers in pairs.
    "operations.py": {"StatelessRandomNormalV2"},
    # Nodes of a trace that are looked for before there is a `Graph`.
    "tracing.py": {"Case", "Cast", "If"},
    # The operation that marks a sum of a replica's own rows.
    "per_replica.py": {"Sum"},
    # Rewrites operations on handles into those on values.
    "sharded_handles.py": {
        "AssignVariableOp",
        "GatherNd",
        "ResourceGatherNd",
        "ResourceScatterNdAdd",
        "ResourceScatterNdMax",
        "ResourceScatterNdMin",
        "ResourceScatterNdSub",
        "ResourceScatterNdUpdate",
        "ResourceStridedSliceAssign",
        "StridedSlice",
    },
    # Look-ups in a table whose rows are sharded; the rule is in `indexing.py`.
    "tables.py": {"GatherV2"},
    # What a tape records of a read outside of steps.
    "sharded_variable.py": {"IdentityN", "ReadVariableOp"},
    # Operations, besides elementwise ones, that compute updates.
    "update_together.py": {"Cast", "Identity", "Pack", "Unpack"},
    # Operations that hold the user's function, in an error's text.
    "error_places.py": {"PartitionedCall", "StatefulPartitionedCall"},
    # How a loss asserts that shapes are equal.
    "others.py": {"All", "Equal"},
    # Patterns of nodes in front of an operation.
    "integers.py": {"Pack", "Slice", "Transpose"},
    "sparse.py": {"Fill", "Maximum", "StridedSlice", "ZerosLike"},
}
"""Files that name types of operations of which they hold no rule."""


def test_an_operation_is_declared_once():
    """A second declaration would hide the first one."""
    with pytest.raises(ValueError, match="declared twice"):
        records.operation("MatMul")


def test_unknown_operations_have_an_empty_record():
    """They run on whole values."""
    assert records.record("NoSuchOperation") == records.Record()


def test_an_operation_is_named_in_one_place():
    """But where it is written, or told apart in a rule of several types."""
    found, used = [], set()
    for path in sorted(FOLDER.rglob("*.py")):
        allowed = _allowed(path)
        for line, type in _named(path):
            if type in allowed:
                used.add((_key(path), type))
            elif type not in EVERYWHERE and path.stem not in _rule_files(type):
                found.append(f"{path.relative_to(FOLDER)}:{line} {type}")
    assert not found
    listed = {(key, one) for key, types in ELSEWHERE.items() for one in types}
    assert listed == used  # The list has nothing that is not needed.


def test_rules_are_in_files_of_rules():
    """A record takes them from `rules`, by which the test above finds them."""
    for type in records.declared():
        for name in RULES:
            rule = getattr(records.record(type), name)
            assert rule is None or "partitioner.rules." in rule.__module__


def _named(path):
    """Lines and types of operations outside of declarations and writing."""
    tree = ast.parse(path.read_text())
    skipped = _declared_or_written(tree)
    declared = records.declared()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in skipped:
            if isinstance(node.value, str) and node.value in declared:
                yield node.lineno, node.value


def _declared_or_written(tree):
    """Constants in declarations, and operations to be written."""
    skipped = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name == "operation":
            skipped.update(ast.walk(node))
        elif name in WRITERS:
            skipped.update(node.args)
    return skipped


def _rule_files(type):
    """Names of the files that hold a rule of a type."""
    record = records.record(type)
    rules = (getattr(record, name) for name in RULES)
    return {rule.__module__.rsplit(".", 1)[1] for rule in rules if rule}


def _key(path):
    if path.name == "__init__.py":
        return f"{path.parent.name}/__init__.py"
    return path.name


def _allowed(path):
    return ELSEWHERE.get(_key(path), set())
