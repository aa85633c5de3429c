"""Writes operations that are not just copied; see `rules.table.Emit`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir.instructions import Value, value
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.rules.kinds import Kind, Partial, Rows, Sharded
from kerasmgpu.partitioner.rules.table import Emit, Plan
from kerasmgpu.partitioner.rules.tables import ids_and_rows
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference
from kerasmgpu.partitioner.step.sizes import SizeLike

Sizes = tuple[SizeLike, ...]

Tensors: TypeAlias = list[Reference]
"""References to the inputs, or the outputs, of an operation on one replica."""

WriteOperation: TypeAlias = Callable[
    [Function, Node, Plan, int, Tensors], Tensors
]
"""Function `(build, node, plan, place, inputs)` that writes an operation for
one replica and returns references to its outputs."""


def as_it_is(
    build: Function, node: Node, plan: Plan, place: int, inputs: Tensors
) -> Tensors:
    """Writes a copy of the operation."""
    return build.copy(node, inputs, place)


def _identity(
    build: Function, node: Node, plan: Plan, place: int, inputs: Tensors
) -> Tensors:
    """Writes an `Identity` instead of the operation."""
    return build.op("Identity", inputs, place)


def _local_mean(
    build: Function,
    node: Node,
    plan: Plan,
    place: int,
    inputs: Tensors,
    others: Sequence[Plan] = (),
) -> Tensors:
    """Writes the mean of a replica's rows, times its fraction of all rows.

    Without rows it is 0, not NaN. A mean over other axes than rows, which is no
    partial sum, is only copied. `others` are the plans on other mesh axes.
    """
    (mean,) = build.copy(node, inputs, place)
    for one in (plan, *others):
        if one.emit is Emit.LOCAL_MEAN and isinstance(one.gives[0], Partial):
            rows = cast(Sharded, one.wants[0]).rows
            mean = build.times_share(mean, rows, place)
    return [mean]


def _draw_rows(
    build: Function, node: Node, plan: Plan, place: int, inputs: Tensors
) -> Tensors:
    """Writes a draw of a replica's own rows: advances the counter to them."""
    local_shape, key, counter, *rest = inputs
    # Numbers in a block of 128 bits, which one step of the counter yields.
    per_block = 2 if node.outputs[0].dtype.size == 8 else 4
    sharded = cast(Sharded, plan.gives[0])
    inner = sizes.product(
        [sharded.inner, *node.outputs[0].shape[sharded.axis + 1 :]]
    )
    op = build.sizes.op

    def rows(number: Reference) -> Reference:
        row = build.sizes.scalar(inner, tf.int64)
        return op("Mul", build.cast(number, tf.int64), row)

    first = rows(build.sizes.start(sharded.rows, place))
    count = rows(build.sizes.count(sharded.rows, place))
    # XLA pairs the halves of a draw for normals (Box-Muller), so that numbers
    # depend on its shape: each replica draws all rows and slices its own.
    is_normal = node.type == "StatelessRandomNormalV2"
    draws_all = is_normal and build.program.compiles(node)
    if draws_all:
        skipped = first
        drawn_shape = build.sizes.vector(
            cast(Sizes, node.outputs[0].shape), tf.int64
        )
    else:
        size = build.sizes.scalar(per_block, tf.int64)
        block = op("FloorDiv", first, size)
        skipped = op("FloorMod", first, size)
        # The counter has 128 bits, the lower 64 first.
        advance = [build.cast(block, tf.uint64), build.constant(0, tf.uint64)]
        counter = op("AddV2", counter, build.sizes.packed(advance))
        drawn_shape = build.sizes.packed([op("AddV2", count, skipped)])
    (drawn,) = build.copy(
        node, [drawn_shape, key, counter, *rest], place, Tshape=tf.int64
    )
    if draws_all:
        drawn = build.flat(drawn)
    bounds = [
        build.sizes.packed([skipped]),
        build.sizes.packed([op("AddV2", skipped, count)]),
        build.constant([1], tf.int64),
    ]
    own = build.strided_slice(drawn, bounds)
    return [build.reshape(own, local_shape)]


def _from_own_first_row(
    position: int,
    build: Function,
    node: Node,
    plan: Plan,
    place: int,
    inputs: Tensors,
) -> Tensors:
    """Writes an operation with row numbers relative to the replica's first row.

    Args:
        position: Number of the input that holds the numbers.
    """
    inputs = list(inputs)
    numbers = value(node.inputs[position], plan.wants[position])
    inputs[position] = _own_numbers(build, numbers, place, inputs[position])
    return build.copy(node, inputs, place)


def _own_numbers(
    build: Function, numbers: Value, place: int, reference: Reference
) -> Reference:
    """Writes row numbers relative to the replica's first row.

    Args:
        numbers: Row numbers in the whole batch, or indices that begin with them.
        reference: The value on this replica.
    """
    if build.mesh.total == 1:
        return reference

    def write() -> Reference:
        tensor = numbers.tensor
        start = build.sizes.start(numbers.sharded.rows.of, place)
        start = build.cast(start, tensor.dtype)
        if len(tensor.shape) > 1:
            zero = build.constant(0, tensor.dtype)
            others = [zero] * (cast(int, tensor.shape[1]) - 1)
            start = build.sizes.packed([start, *others])
        where = build.place_of(reference)
        return build.op("Sub", [reference, start], where)[0]

    return build.keep(("own numbers", reference), write)


def _segments(
    build: Function, node: Node, plan: Plan, place: int, inputs: Tensors
) -> Tensors:
    """Writes a reduction over segments, with a segment per row of the replica."""
    data, ids, _ = inputs
    numbers = value(node.inputs[1], plan.wants[1])
    count = build.sizes.count(numbers.sharded.rows.of, place)
    count = build.cast(count, node.inputs[2].dtype)
    ids = _own_numbers(build, numbers, place, ids)
    return build.copy(node, [data, ids, count], place)


def _write_shape(
    build: Function, node: Node, plan: Plan, place: int, inputs: Tensors
) -> Tensors:
    """Writes the whole shape of a sharded variable."""
    return [build.sizes.vector(node.inputs[0].element, node.outputs[0].dtype)]


def look_up_own(
    build: Function,
    node: Node,
    plan: Plan,
    place: int,
    inputs: Tensors,
    others: Sequence[Plan] = (),
) -> Tensors:
    """Looks up the rows that a replica owns; others are zeros.

    `others` are the plans on other axes of the mesh.
    """
    ids = inputs[1]
    start, end = build.mesh.part_of(cast(Sharded, plan.wants[0]).rows, place)
    if start == end:  # Another micro-batch of the device has its part.
        kinds = [other.gives[0] for other in others]
        return _zeros(build, node, place, ids, kinds)
    is_own, own = _own(build, plan, place, ids)
    zero = build.constant(0, ids.dtype, place)
    own = build.op("SelectV2", [is_own, own, zero])[0]
    rows = build.copy(node, [inputs[0], own, *inputs[2:]], place)[0]
    inner = len(node.outputs[0].shape) - len(node.inputs[1].shape)
    ones = build.constant([1] * inner)
    shape = build.concat([build.sizes.shape(is_own), ones], 0, HOST)
    is_own = build.reshape(is_own, shape)
    nothing = build.constant(0, rows.dtype, place)
    return build.op("SelectV2", [is_own, rows, nothing])


def _zeros(
    build: Function,
    node: Node,
    place: int,
    ids: Reference,
    kinds: Sequence[Kind],
) -> Tensors:
    """Writes zeros of the shape of the rows that are looked up."""
    made, numbers = node.outputs[0], node.inputs[1]
    inner = _shape_of_rows(build, (), made, numbers, kinds, place)
    shape = build.concat([build.sizes.shape(ids), inner], 0, HOST)
    zero = build.constant(0, made.dtype, place)
    return build.op("Fill", [shape, zero], place)


def _shape_of_rows(
    build: Function,
    front: Sizes,
    rows: Tensor,
    numbers: Tensor,
    kinds: Sequence[Kind],
    place: int,
) -> Reference:
    """Returns the shape of a table's rows as a replica has them.

    Args:
        front: Sizes in front of those of a row.
        rows: The rows, `[*numbers.shape, …]`.
        kinds: Kinds of `rows` on other axes of the mesh, which divide the
            table's columns.
    """
    first, shape = len(numbers.shape), cast(Sizes, rows.shape)
    divided = {
        kind.axis: build.sizes.local(kind, place)
        for kind in kinds
        if isinstance(kind, Sharded)
    }
    if not divided:
        return build.sizes.vector((*front, *shape[first:]))
    return build.sizes.packed(
        [
            *map(build.sizes.scalar, front),
            *(
                divided.get(axis) or build.sizes.scalar(shape[axis])
                for axis in range(first, len(shape))
            ),
        ]
    )


def _update_own(
    build: Function,
    node: Node,
    plan: Plan,
    place: int,
    inputs: Tensors,
    others: Sequence[Plan] = (),
) -> Tensors:
    """Applies, in order, those updates whose rows a replica owns.

    `others` are the plans on other axes of the mesh.
    """
    number, rows = ids_and_rows(node)
    ids, updates = node.inputs[number], node.inputs[rows]
    flat = build.flat(inputs[number], place)
    is_own, own = _own(build, plan, place, flat)
    chosen = build.flat(build.op("Where", [is_own])[0])

    def taken(reference: Reference) -> Reference:
        return build.op("GatherV2", [reference, chosen, build.constant(0)])[0]

    arguments = list(inputs)
    arguments[number] = taken(own)
    if updates.rank:
        kinds = [other.wants[rows] for other in others]
        shape = _shape_of_rows(build, (-1,), updates, ids, kinds, place)
        arguments[rows] = taken(build.reshape(inputs[rows], shape, place))
    return build.copy(node, arguments, place)


def _update_owned(
    build: Function, node: Node, plan: Plan, place: int, inputs: Tensors
) -> Tensors:
    """Applies updates that a replica was sent, as it owns their rows."""
    number, _ = ids_and_rows(node)
    arguments, rows = list(inputs), cast(Sharded, plan.wants[0]).rows
    arguments[number] = in_part(build, rows, place, inputs[number])
    return build.copy(node, arguments, place)


def _sum_own(
    build: Function, node: Node, plan: Plan, place: int, inputs: Tensors
) -> Tensors:
    """Sums up, per row that a replica owns, the updates that it was sent."""
    rows = cast(Sharded, plan.gives[0]).rows
    start, end = build.mesh.part_of(rows, place)
    own = in_part(build, rows, place, inputs[1])
    size = build.constant(end - start, inputs[2].dtype)
    return build.copy(node, [inputs[0], own, size], place)


def in_part(
    build: Function, rows: Rows, place: int, numbers: Reference
) -> Reference:
    """Converts a table's row numbers to numbers in a replica's part of it."""
    start, _ = build.mesh.part_of(rows, place)
    first = build.constant(start, numbers.dtype, place)
    return build.op("Sub", [numbers, first], place)[0]


def _own(
    build: Function, plan: Plan, place: int, ids: Reference
) -> tuple[Reference, Reference]:
    """Returns whether a replica owns the row of each of `ids`, and `in_part(ids)`.

    Numbers out of range belong to the first or the last replica, whose kernel
    handles them as on one device.
    """
    kind = cast(Sharded, plan.wants[0])
    start, end = build.mesh.part_of(kind.rows, place)
    own = in_part(build, kind.rows, place, ids)
    over = kind.rows.over
    index = build.mesh.index(place, over)
    found = []
    if index > 0:
        bound = build.constant(start, ids.dtype, place)
        found += build.op("GreaterEqual", [ids, bound], place)
    if index < build.mesh.size(over) - 1:
        bound = build.constant(end, ids.dtype, place)
        found += build.op("Less", [ids, bound], place)
    if not found:  # One replica owns all.
        found = build.op("Equal", [ids, ids], place)
    if len(found) > 1:
        found = build.op("LogicalAnd", found)
    return found[0], own


WRITERS: Mapping[Emit | None, WriteOperation] = MappingProxyType(
    {
        None: as_it_is,
        Emit.IDENTITY: _identity,
        Emit.DRAW_ROWS: _draw_rows,
        Emit.LOCAL_MEAN: _local_mean,
        Emit.FIRST_INPUT_FROM_OWN_ROW: partial(_from_own_first_row, 0),
        Emit.SECOND_INPUT_FROM_OWN_ROW: partial(_from_own_first_row, 1),
        Emit.OWN_SEGMENTS: _segments,
        Emit.WHOLE_SHAPE: _write_shape,
        Emit.LOOK_UP_OWN: look_up_own,
        Emit.UPDATE_OWN: _update_own,
        Emit.UPDATE_OWNED: _update_owned,
        Emit.SUM_OWN: _sum_own,
    }
)
"""Maps each way to write an operation to the function that does so."""


_ALONG_AXES = (Emit.LOCAL_MEAN, Emit.LOOK_UP_OWN, Emit.UPDATE_OWN)
"""Ways to write that take the plans on other axes of the mesh, as `others`."""


def writer_of(plans: Sequence[Plan]) -> tuple[WriteOperation, Plan]:
    """Returns the function that writes an operation, and the plan it takes.

    Args:
        plans: The operation's plan on each axis of the mesh, which go together;
            see `rules/compatible.py`.
    """
    if len(plans) == 1:
        return WRITERS[plans[0].emit], plans[0]
    # If there are several, all are written in the same way.
    plan = next((one for one in plans if one.emit and one.is_local), plans[0])
    if plan.emit not in _ALONG_AXES:
        return WRITERS[plan.emit if plan.is_local else None], plan
    write: Callable[..., Tensors] = WRITERS[plan.emit]
    others = [one for one in plans if one is not plan]
    return partial(write, others=others), plan
