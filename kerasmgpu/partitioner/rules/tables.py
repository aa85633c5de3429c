"""Plans look-ups in a sharded variable, and updates of some of its rows.

The rows of such a table are divided over the replicas. Row numbers that are
sharded like a batch are sent to the replicas that own the rows, and the rows
are sent back. Updates are sent to the owners, too, which apply them in their
order; so are gradients, which the owners add up. See `exchanges.py`.

Whole row numbers are looked up on all replicas: each gives zeros for the rows
of the others. The results are a partial sum, and exact, since only one summand
isn't zero. Of whole updates, each replica applies those of its own rows.
"""

import dataclasses
from collections.abc import Sequence
from typing import cast

import tensorflow as tf

from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    Owned,
    Sharded,
    is_of_variable,
)
from kerasmgpu.partitioner.rules.table import Emit, Plan
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, op_definition
from kerasmgpu.partitioner.step.records import Trait

Sizes = tuple[sizes.SizeLike, ...]


def look_up(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a look-up, `(table, ids, …)`, in a sharded table.

    Each replica looks up all row numbers. The result is partial if the rows are
    sharded, and sharded if the columns are. Returns `None` for other tables, an
    axis other than 0, `batch_dims`, unknown ranks, and sharded rows of other
    types than integers and floats.
    """
    kind = kinds[0]
    if not is_of_variable(kind) or not isinstance(kind, Sharded):
        return None
    if kind.outer != 1 or kind.inner != 1 or node.attr("batch_dims"):
        return None
    axis = node.inputs[2:]
    if axis and sizes.as_scalar(axis[0].value) != 0:
        return None
    rank = node.inputs[1].rank
    if rank is None or node.outputs[0].rank is None:
        return None
    wants: tuple[Kind, ...] = (kind, *(REPLICATED for _ in node.inputs[1:]))
    if kind.axis > 0:  # Each replica has some columns of all rows.
        return Plan(wants, (kind.at(kind.axis + rank - 1),))
    if not kind.rows.are_fixed or not (
        node.outputs[0].dtype.is_floating or node.outputs[0].dtype.is_integer
    ):
        return None
    return Plan(wants, (PARTIAL,), Emit.LOOK_UP_OWN)


def is_look_up(node: Node, kinds: Sequence[Kind]) -> bool:
    """Whether a node looks up rows in a table whose rows are sharded."""
    if node.type not in ("GatherV2", "ResourceGather"):
        return False
    plan = look_up(node, kinds)
    return plan is not None and plan.emit is not None


def exchange(
    node: Node, kinds: Sequence[Kind], target: Sharded | None
) -> Plan | None:
    """Plans a look-up in a sharded table, or the sum that is its gradient.

    Row numbers that are sharded like a batch are sent to the rows' owners.

    Args:
        target: Kind of the sharded variable that the only output goes into, or
            `None`. A segment sum is planned only if the variable's rows are
            sharded.

    Returns:
        A plan; `None` for other nodes, for other kinds of row numbers, and for a
        table that is divided along other mesh axes than the batch.
    """
    if is_look_up(node, kinds):
        plan, numbers = look_up(node, kinds), _of_batch(kinds[1], kinds[0])
        if plan is None or numbers is None:
            return None
        wants = (plan.wants[0], numbers, *plan.wants[2:])
        return dataclasses.replace(plan, wants=wants, gives=(numbers,))
    is_sum = Trait.ADDS_SEGMENTS in node.traits
    if is_sum and _is_table(target):
        rows = _of_batch(kinds[1], target)
        if rows is None or node.inputs[1].rank is None:
            return None
        owned = Owned(cast(Sharded, target), rows, node.inputs[1])
        wants = (owned, owned, REPLICATED)
        return Plan(wants, (cast(Kind, target),), Emit.SUM_OWN)
    return None


def is_exchanged(plan: Plan) -> bool:
    """Whether a plan is that of a look-up by `exchange`."""
    return plan.emit is Emit.LOOK_UP_OWN and not plan.gives[0] == PARTIAL


def has_varying_sizes(plan: Plan) -> bool:
    """Whether input values decide how many rows a replica works on."""
    return plan.emit is Emit.UPDATE_OWN or any(
        isinstance(kind, Owned) for kind in plan.wants
    )


def _of_batch(kind: Kind, table: Kind | None) -> Sharded | None:
    """Returns `kind` if it shards the first axis like a batch; else `None`.

    Also `None` if the table is divided over other replicas than the batch.
    """
    if not isinstance(kind, Sharded) or is_of_variable(kind):
        return None
    if not isinstance(table, Sharded) or table.rows.over != kind.rows.over:
        return None
    return kind if kind.axis == 0 and kind.outer == 1 else None


def _is_table(kind: Kind | None) -> bool:
    """Whether it is the kind of a variable whose rows are sharded."""
    return (
        isinstance(kind, Sharded)
        and is_of_variable(kind)
        and kind.axis == 0
        and kind.outer == kind.inner == 1
    )


def update(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans updates, `(table, …, ids, updates)`, of rows of a sharded table.

    Returns `None` for other tables, if a slot is sharded otherwise, or if a
    rank is unknown.
    """
    kind = kinds[0]
    if not is_of_variable(kind) or not isinstance(kind, Sharded):
        return None
    ids, rows = ids_and_rows(node)
    rank = node.inputs[ids].rank
    if rank is None or node.inputs[rows].rank is None:
        return None
    batch = _of_batch(kinds[ids], kind) if _is_table(kind) else None
    owned = batch and Owned(kind, batch, node.inputs[ids])
    wants: list[Kind] = []
    for number, tensor in enumerate(node.inputs):
        if tensor.dtype == tf.resource:
            if kinds[number] != kind:
                return None  # A slot that isn't sharded as its variable is.
            wants.append(kind)
        elif owned and number in (ids, rows) and tensor.rank:
            wants.append(owned)
        elif number == rows and kind.axis > 0 and tensor.shape:
            wants.append(kind.at(kind.axis + rank - 1))
        else:
            wants.append(REPLICATED)
    emit = None
    if kind.axis == 0:
        emit = Emit.UPDATE_OWNED if owned else Emit.UPDATE_OWN
    return Plan(tuple(wants), tuple(kind for _ in node.outputs), emit)


def ids_and_rows(node: Node) -> tuple[int, int]:
    """Returns the positions of the inputs that hold row numbers and updates."""
    names = [arg.name for arg in op_definition(node.type).input_arg]
    return names.index("indices"), names.index(
        "grad" if "grad" in names else "updates"
    )
