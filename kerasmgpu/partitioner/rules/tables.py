"""Look-ups in a sharded variable, and updates of some of its rows.

Where the rows of a table are divided over the replicas, numbers that are sharded
as a batch is travel to the replicas that own the rows, and the rows come back.
Updates travel to the owners, too, and are applied in their order; so are gradients,
which the owners add up. See `exchanges.py`.

Whole numbers are looked up on all replicas: each has zeros for the rows of the
others, a partial sum, exact, since one summand is no zero. Of whole updates each
applies those of its own rows.
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
from kerasmgpu.partitioner.step.records import Trait, record

Sizes = tuple[sizes.SizeLike, ...]


def look_up(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(table, ids, …)`: gathers rows of a sharded table; `None` for others."""
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
    if not (
        node.outputs[0].dtype.is_floating or node.outputs[0].dtype.is_integer
    ):
        return None
    return Plan(wants, (PARTIAL,), Emit.LOOK_UP_OWN)


def is_look_up(node: Node, kinds: Sequence[Kind]) -> bool:
    """Whether a node looks rows up in a table whose rows are sharded."""
    if node.type not in ("GatherV2", "ResourceGather"):
        return False
    plan = look_up(node, kinds)
    return plan is not None and plan.emit is not None


def exchange(
    node: Node, kinds: Sequence[Kind], target: Sharded | None
) -> Plan | None:
    """Of a batch's rows: a look-up, or a sum that goes into a table.

    Args:
        node: The node.
        kinds: Kinds of its inputs.
        target: The kind in which the only output is needed, where it goes into
            a sharded variable.

    Returns:
        A plan, or `None` where such numbers don't travel.
    """
    if is_look_up(node, kinds):
        plan, numbers = look_up(node, kinds), _of_batch(kinds[1])
        if plan is None or numbers is None:
            return None
        wants = (plan.wants[0], numbers, *plan.wants[2:])
        return dataclasses.replace(plan, wants=wants, gives=(numbers,))
    is_sum = Trait.ADDS_SEGMENTS in record(node.type).traits
    if is_sum and _is_table(target):
        rows = _of_batch(kinds[1])
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
    """Whether the values decide how many rows a replica works on."""
    return plan.emit is Emit.UPDATE_OWN or any(
        isinstance(kind, Owned) for kind in plan.wants
    )


def _of_batch(kind: Kind) -> Sharded | None:
    """The kind of numbers that are sharded on their first axis as a batch is."""
    if not isinstance(kind, Sharded) or is_of_variable(kind):
        return None
    return kind if kind.axis == 0 and kind.outer == 1 else None


def _is_table(kind: Kind | None) -> bool:
    """Whether the rows of a variable are divided over the replicas."""
    return (
        isinstance(kind, Sharded)
        and is_of_variable(kind)
        and kind.axis == 0
        and kind.outer == kind.inner == 1
    )


def update(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(table, …, ids, updates)`: changes rows of a sharded table."""
    kind = kinds[0]
    if not is_of_variable(kind) or not isinstance(kind, Sharded):
        return None
    ids, rows = ids_and_rows(node)
    rank = node.inputs[ids].rank
    if rank is None or node.inputs[rows].rank is None:
        return None
    batch = _of_batch(kinds[ids]) if _is_table(kind) else None
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
    """Numbers of the inputs with the rows' numbers, and with their updates."""
    names = [arg.name for arg in op_definition(node.type).input_arg]
    return names.index("indices"), names.index(
        "grad" if "grad" in names else "updates"
    )
