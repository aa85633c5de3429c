"""Operations that are not written as copies; see `rules.table.Emit`."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias, cast

import tensorflow as tf

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.rules.kinds import Partial, Rows, Sharded
from kerasmgpu.partitioner.rules.table import Emit, Plan
from kerasmgpu.partitioner.rules.tables import ids_and_rows
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.sizes import SizeLike

Sizes = tuple[SizeLike, ...]

WriteOperation: TypeAlias = Callable[
    [Function, Node, Plan, int, list[str]], list[str]
]
"""Function `(build, node, plan, place, inputs)` that writes an operation for one
replica and returns references to its outputs."""


def as_it_is(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Writes a copy of the operation."""
    return build.copy(node, inputs, place)


def _identity(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Writes an `Identity` instead of the operation."""
    return build.op("Identity", inputs, {"T": node.inputs[0].dtype}, place)


def _local_mean(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Writes the mean of a replica's rows, times its fraction of all rows.

    Of no rows it is 0, not NaN.
    """
    (mean,) = build.copy(node, inputs, place)
    if not isinstance(plan.gives[0], Partial):
        return [mean]
    rows, dtype = cast(Sharded, plan.wants[0]).rows, node.outputs[0].dtype
    return [build.times_share(mean, rows, dtype, place)]


def _draw_rows(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Writes the draw of a replica's rows, from the counter of their first block."""
    local_shape, key, counter, *rest = inputs
    dtype = node.outputs[0].dtype
    per_block = 2 if dtype.size == 8 else 4
    sharded = cast(Sharded, plan.gives[0])
    inner = sizes.product(
        [sharded.inner, *node.outputs[0].shape[sharded.axis + 1 :]]
    )

    def op(type: str, *operands: str) -> str:
        return build.sizes.op(type, *operands, dtype=tf.int64)

    def rows(number: str) -> str:
        return op(
            "Mul",
            build.cast(number, tf.int32, tf.int64, HOST),
            build.sizes.scalar(inner, tf.int64),
        )

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
        counter = _advanced(build, counter, block)
        length = op("AddV2", count, skipped)
        drawn_shape = build.sizes.packed([length], tf.int64)
    (drawn,) = build.copy(
        node, [drawn_shape, key, counter, *rest], place, Tshape=tf.int64
    )
    if draws_all:
        drawn = build.flat(drawn, dtype, place)
    own = build.strided_slice(
        drawn,
        build.sizes.packed([skipped], tf.int64),
        build.sizes.packed([op("AddV2", skipped, count)], tf.int64),
        build.constant([1], tf.int64, HOST),
        dtype,
        place,
        index=tf.int64,
    )
    return [build.reshape(own, local_shape, dtype, place, node.inputs[0].dtype)]


def _advanced(build: Function, counter: str, blocks: str) -> str:
    """Writes a counter (128 bits, the lower 64 first) advanced by some blocks."""
    blocks = build.cast(blocks, tf.int64, tf.uint64, HOST)
    zero = build.constant(0, tf.uint64, HOST)
    step = build.sizes.packed([blocks, zero], tf.uint64)
    return build.sizes.op("AddV2", counter, step, dtype=tf.uint64)


def _from_own_first_row(
    position: int,
    build: Function,
    node: Node,
    plan: Plan,
    place: int,
    inputs: list[str],
) -> list[str]:
    """Writes an operation with row numbers relative to the replica's first row.

    Args:
        position: Number of the input that holds the numbers.
    """
    inputs = list(inputs)
    inputs[position] = _own_numbers(
        build,
        node.inputs[position],
        cast(Sharded, plan.wants[position]),
        place,
        inputs[position],
    )
    return build.copy(node, inputs, place)


def _own_numbers(
    build: Function,
    tensor: Tensor,
    entries: Sharded,
    place: int,
    reference: str,
) -> str:
    """Writes row numbers relative to the replica's first row.

    Args:
        build: The function that is written.
        tensor: Row numbers in the whole batch, or indices that begin with them.
        entries: Its kind.
        place: The replica's place.
        reference: The tensor on this replica.
    """
    if build.mesh.total == 1:
        return reference

    def write() -> str:
        start = build.sizes.start(entries.rows.of, place)
        start = build.cast(start, tf.int32, tensor.dtype, HOST)
        if len(tensor.shape) > 1:
            zero = build.constant(0, tensor.dtype, HOST)
            others = [zero] * (cast(int, tensor.shape[1]) - 1)
            start = build.sizes.packed([start, *others], tensor.dtype)
        where = build.place_of(reference)
        operands = [reference, start]
        return build.op("Sub", operands, {"T": tensor.dtype}, where)[0]

    return build.keep(("own numbers", reference), write)


def _segments(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    data, ids, _ = inputs
    entries = cast(Sharded, plan.wants[1])
    count = build.sizes.count(entries.rows.of, place)
    dtype = node.inputs[2].dtype
    count = build.cast(count, tf.int32, dtype, HOST)
    ids = _own_numbers(build, node.inputs[1], entries, place, ids)
    return build.copy(node, [data, ids, count], place)


def _write_shape(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Writes the whole shape of a sharded variable."""
    return [build.sizes.vector(node.inputs[0].element, node.outputs[0].dtype)]


def look_up_own(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Rows that a replica owns, and zeros for all others."""
    ids, dtype = node.inputs[1], node.outputs[0].dtype
    start, end = build.mesh.part_of(cast(Sharded, plan.wants[0]).rows, place)
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


def _zeros(build: Function, node: Node, place: int, ids: str) -> list[str]:
    """Zeros of the shape of what is looked up."""
    dtype, rank = node.outputs[0].dtype, len(node.inputs[1].shape)
    inner = build.sizes.vector(cast(Sizes, node.outputs[0].shape[rank:]))
    shape = build.sizes.shape(ids, node.inputs[1].dtype)
    shape = build.concat([shape, inner], 0, tf.int32, HOST)
    zero = build.constant(0, dtype, place)
    attributes = {"T": dtype, "index_type": tf.int32}
    return build.op("Fill", [shape, zero], attributes, place)


def _update_own(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Updates of the rows that a replica owns, in their order."""
    number, rows = ids_and_rows(node)
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
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Updates of the rows that a replica owns, which it was sent."""
    number, _ = ids_and_rows(node)
    arguments, dtype = list(inputs), node.inputs[number].dtype
    rows = cast(Sharded, plan.wants[0]).rows
    arguments[number] = in_part(build, rows, place, inputs[number], dtype)
    return build.copy(node, arguments, place)


def _sum_own(
    build: Function, node: Node, plan: Plan, place: int, inputs: list[str]
) -> list[str]:
    """Sums of the rows that a replica owns, of what it was sent."""
    _, ids, count = node.inputs
    rows = cast(Sharded, plan.gives[0]).rows
    start, end = build.mesh.part_of(rows, place)
    own = in_part(build, rows, place, inputs[1], ids.dtype)
    size = build.constant(end - start, count.dtype, HOST)
    return build.copy(node, [inputs[0], own, size], place)


def in_part(
    build: Function, rows: Rows, place: int, numbers: str, dtype: tf.DType
) -> str:
    """Numbers of a table's rows as numbers in a replica's part of it."""
    start, _ = build.mesh.part_of(rows, place)
    first = build.constant(start, dtype, place)
    return build.op("Sub", [numbers, first], {"T": dtype}, place)[0]


def _own(
    build: Function, node: Node, plan: Plan, place: int, ids: str, number: int
) -> tuple[str, str]:
    """Which rows a replica owns, and all rows' numbers in its part.

    Numbers out of range belong to the first or the last replica, whose kernel
    then fails, or doesn't, as on one device.
    """
    dtype = node.inputs[number].dtype
    kind = cast(Sharded, plan.wants[0])
    start, end = build.mesh.part_of(kind.rows, place)
    own = in_part(build, kind.rows, place, ids, dtype)
    index = build.mesh.first + place
    found = []
    if index > 0:
        bound = build.constant(start, dtype, place)
        found += build.op("GreaterEqual", [ids, bound], {"T": dtype}, place)
    if index < build.mesh.total - 1:
        bound = build.constant(end, dtype, place)
        found += build.op("Less", [ids, bound], {"T": dtype}, place)
    if not found:  # One replica owns all.
        equal = {"T": dtype, "incompatible_shape_error": True}
        found = build.op("Equal", [ids, ids], equal, place)
    if len(found) > 1:
        found = build.op("LogicalAnd", found, {}, place)
    return found[0], own


WRITERS: Mapping[Emit | None, WriteOperation] = MappingProxyType(
    {
        None: as_it_is,
        Emit.IDENTITY: _identity,
        Emit.DRAW_ROWS: _draw_rows,
        Emit.LOCAL_MEAN: _local_mean,
        Emit.FIRST_INPUT_FROM_OWN_ROW: functools.partial(
            _from_own_first_row, 0
        ),
        Emit.SECOND_INPUT_FROM_OWN_ROW: functools.partial(
            _from_own_first_row, 1
        ),
        Emit.OWN_SEGMENTS: _segments,
        Emit.WHOLE_SHAPE: _write_shape,
        Emit.LOOK_UP_OWN: look_up_own,
        Emit.UPDATE_OWN: _update_own,
        Emit.UPDATE_OWNED: _update_owned,
        Emit.SUM_OWN: _sum_own,
    }
)
"""Function of each way to write an operation."""
