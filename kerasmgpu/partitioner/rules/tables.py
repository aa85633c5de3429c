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
from typing import TYPE_CHECKING, cast

import tensorflow as tf

from kerasmgpu.partitioner import sizes
from kerasmgpu.partitioner.graph import Node, op_definition
from kerasmgpu.partitioner.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    Owned,
    Rows,
    Sharded,
    is_of_variable,
)
from kerasmgpu.partitioner.places import HOST
from kerasmgpu.partitioner.records import Trait, record
from kerasmgpu.partitioner.rules.table import Plan

Sizes = tuple[sizes.SizeLike, ...]

if TYPE_CHECKING:
    from kerasmgpu.partitioner.building import Build


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
    return Plan(wants, (PARTIAL,), look_up_own)


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
        return Plan(wants, (cast(Kind, target),), _sum_own)
    return None


def is_exchanged(plan: Plan) -> bool:
    """Whether a plan is that of a look-up by `exchange`."""
    return plan.emit is look_up_own and not plan.gives[0] == PARTIAL


def has_varying_sizes(plan: Plan) -> bool:
    """Whether the values decide how many rows a replica works on."""
    return plan.emit is _update_own or any(
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
    ids, rows = _ids_and_rows(node)
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
    emit = None if kind.axis > 0 else _update_owned if owned else _update_own
    return Plan(tuple(wants), tuple(kind for _ in node.outputs), emit)


def _ids_and_rows(node: Node) -> tuple[int, int]:
    """Numbers of the inputs with the rows' numbers, and with their updates."""
    names = [arg.name for arg in op_definition(node.type).input_arg]
    return names.index("indices"), names.index(
        "grad" if "grad" in names else "updates"
    )


def look_up_own(
    build: "Build", node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Rows that a replica owns, and zeros for all others."""
    ids, dtype = node.inputs[1], node.outputs[0].dtype
    start, end = build.replicas.part_of(
        cast(Sharded, plan.wants[0]).rows, place
    )
    if start == end:  # Another micro-batch of the device has its part.
        return _zeros(build, node, place, inputs[1])
    is_own, own = _own(build, node, plan, place, inputs[1], 1)
    zero = build.constant(0, ids.dtype, place)
    own = build.op("SelectV2", [is_own, own, zero], {"T": ids.dtype}, place)[0]
    rows = build.copy(node, [inputs[0], own, *inputs[2:]], place)[0]
    inner = len(node.outputs[0].shape) - len(ids.shape)
    shape = build.concat(
        [
            build.sizes.shape(is_own, tf.bool),
            build.constant([1] * inner, tf.int32, HOST),
        ],
        0,
        tf.int32,
        HOST,
    )
    is_own = build.reshape(is_own, shape, tf.bool, place)
    nothing = build.constant(0, dtype, place)
    return build.op("SelectV2", [is_own, rows, nothing], {"T": dtype}, place)


def _zeros(build: "Build", node: Node, place: int, ids: str) -> list[str]:
    """Zeros of the shape of what is looked up."""
    dtype, rank = node.outputs[0].dtype, len(node.inputs[1].shape)
    inner = build.sizes.vector(cast(Sizes, node.outputs[0].shape[rank:]))
    shape = build.sizes.shape(ids, node.inputs[1].dtype)
    shape = build.concat([shape, inner], 0, tf.int32, HOST)
    zero = build.constant(0, dtype, place)
    attributes = {"T": dtype, "index_type": tf.int32}
    return build.op("Fill", [shape, zero], attributes, place)


def _update_own(
    build: "Build", node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Updates of the rows that a replica owns, in their order."""
    number, rows = _ids_and_rows(node)
    ids, updates = node.inputs[number], node.inputs[rows]
    flat = build.flat(inputs[number], ids.dtype, place)
    is_own, own = _own(build, node, plan, place, flat, number)
    chosen = build.op("Where", [is_own], {"T": tf.bool}, place)[0]
    chosen = build.reshape(
        chosen, build.constant([-1], tf.int32, HOST), tf.int64, place
    )

    def taken(reference: str, dtype: tf.DType) -> str:
        zero = build.constant(0, tf.int32, HOST)
        attributes = {"Tparams": dtype, "Tindices": tf.int64}
        attributes |= {"Taxis": tf.int32, "batch_dims": 0}
        return build.op(
            "GatherV2", [reference, chosen, zero], attributes, place
        )[0]

    arguments = list(inputs)
    arguments[number] = taken(own, ids.dtype)
    if updates.rank:
        inner = updates.shape[len(ids.shape) :]
        shape = build.sizes.vector((-1, *inner))
        flat = build.reshape(inputs[rows], shape, updates.dtype, place)
        arguments[rows] = taken(flat, updates.dtype)
    return build.copy(node, arguments, place)


def _update_owned(
    build: "Build", node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Updates of the rows that a replica owns, which it was sent."""
    number, _ = _ids_and_rows(node)
    arguments, dtype = list(inputs), node.inputs[number].dtype
    rows = cast(Sharded, plan.wants[0]).rows
    arguments[number] = in_part(build, rows, place, inputs[number], dtype)
    return build.copy(node, arguments, place)


def _sum_own(
    build: "Build", node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Sums of the rows that a replica owns, of what it was sent."""
    _, ids, count = node.inputs
    rows = cast(Sharded, plan.gives[0]).rows
    start, end = build.replicas.part_of(rows, place)
    own = in_part(build, rows, place, inputs[1], ids.dtype)
    size = build.constant(end - start, count.dtype, HOST)
    return build.copy(node, [inputs[0], own, size], place)


def in_part(
    build: "Build", rows: Rows, place: int, numbers: str, dtype: tf.DType
) -> str:
    """Numbers of a table's rows as numbers in a replica's part of it."""
    start, _ = build.replicas.part_of(rows, place)
    first = build.constant(start, dtype, place)
    return build.op("Sub", [numbers, first], {"T": dtype}, place)[0]


def _own(
    build: "Build", node: Node, plan: Plan, place: int, ids: str, number: int
) -> tuple[str, str]:
    """Which rows a replica owns, and all rows' numbers in its part.

    Numbers out of range belong to the first or the last replica, whose kernel
    then fails, or doesn't, as on one device.
    """
    dtype = node.inputs[number].dtype
    kind = cast(Sharded, plan.wants[0])
    start, end = build.replicas.part_of(kind.rows, place)
    own = in_part(build, kind.rows, place, ids, dtype)
    index = build.replicas.first + place
    found = []
    if index > 0:
        bound = build.constant(start, dtype, place)
        found += build.op("GreaterEqual", [ids, bound], {"T": dtype}, place)
    if index < build.replicas.total - 1:
        bound = build.constant(end, dtype, place)
        found += build.op("Less", [ids, bound], {"T": dtype}, place)
    if not found:  # One replica owns all.
        equal = {"T": dtype, "incompatible_shape_error": True}
        found = build.op("Equal", [ids, ids], equal, place)
    if len(found) > 1:
        found = build.op("LogicalAnd", found, {}, place)
    return found[0], own
