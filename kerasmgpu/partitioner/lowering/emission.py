"""Writes a program as a `FunctionDef`, instruction by instruction."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir import instructions as ir
from kerasmgpu.partitioner.ir.exchanges import LookUp, ToOwners
from kerasmgpu.partitioner.ir.lowered import Lowered, Region
from kerasmgpu.partitioner.ir.micro_batches import (
    Accumulate,
    FirstMicroBatchOnly,
    MicroBatchRows,
)
from kerasmgpu.partitioner.lowering import (
    device_shares,
    empty_shares,
    exchanges,
    micro_batches,
    regions,
)
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.function_writer import References
from kerasmgpu.partitioner.lowering.operations import WRITERS
from kerasmgpu.partitioner.lowering.replicas import combined
from kerasmgpu.partitioner.mesh import first_on_device
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    LocalSizes,
    PerReplica,
    Sharded,
)
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace


def emit(build: Build, program: Lowered) -> None:
    """Writes all instructions of a program, whose inputs are given."""
    for instruction in program.instructions:
        build.time = program.turn_of(instruction)[0], -1
        _EMIT[type(instruction)](build, instruction)
        build.writer.turn = None


# Operations ------------------------------------------------------------------


def _constant(build: Build, constant: ir.Constant) -> None:
    node = constant.node
    (made,) = constant.outputs
    on_devices = OnEachPlace(lambda place: build.copy(node, [], place)[0])
    build.give(
        made,
        OnEachPlace(
            lambda place: on_devices[first_on_device(build.mesh, place)],
            are_alike=True,
        ),
    )


def _operation(build: Build, operation: ir.Operation) -> None:
    inputs = list(map(build.references, operation.inputs))
    if operation.runs is ir.Runs.ONCE:
        outputs = _once(build, operation, inputs)
        build.note_ran(operation, [build.writer.last])
    else:
        outputs = _on_each(build, operation, inputs)
    # Known sizes are no value of their own.
    note = build.hold if is_known(operation.node) else build.give
    for one, references in zip(operation.outputs, outputs):
        note(one, references)


def _once(
    build: Build, operation: ir.Operation, inputs: list[References]
) -> list[References]:
    place = operation.home
    build.span = build.mesh.num
    made = build.copy(operation.node, [refs[place] for refs in inputs], place)
    build.span = 1
    build.note_done(operation.node)
    return [build.same(reference) for reference in made]


def _on_each(
    build: Build, operation: ir.Operation, inputs: list[References]
) -> list[References]:
    node, plan = operation.node, operation.plan
    write: Callable[..., list[str]] = WRITERS[plan.emit]
    if operation.is_guarded:
        write = empty_shares.write
    outputs: list[list[str]] = [[] for _ in node.outputs]
    names = []
    is_each = operation.runs is ir.Runs.ON_EACH
    build.span = 1 if is_each else build.mesh.micro_batches
    for place in range(0, build.mesh.num, build.span):
        build.take_turn(operation, place)
        arguments = [references[place] for references in inputs]
        with _varying(build, tables.has_varying_sizes(plan)):
            made = write(build, node, plan, place, arguments)
        names.append(build.note_done(node))
        for _ in range(1, build.span):
            build.note_done(node)
        for references, reference in zip(outputs, made):
            references += [reference] * build.span
    build.span = 1
    build.note_ran(operation, names)
    if operation.runs is ir.Runs.ON_COPIES:
        build.twins.update(dict.fromkeys(names, names))
    return list(outputs)


# Communication ---------------------------------------------------------------


def _all_reduce(build: Build, reduction: ir.AllReduce) -> None:
    wide = [_widened(build, reduction, one) for one in reduction.inputs]
    totals = micro_batches.reduce(build, wide, reduction.by)
    for one, tensor, references in zip(reduction.outputs, wide, totals):
        references = _cast(build, references, tensor.dtype, one.tensor.dtype)
        build.hold(one, references)


def _widened(build: Build, reduction: ir.AllReduce, one: ir.Value) -> Tensor:
    """The tensor whose parts are merged, in the type in which they are."""
    tensor, dtype = one.tensor, reduction.type_of(one)
    if dtype == tensor.dtype:
        return tensor
    wide = Tensor(tensor.node, tensor.index, dtype, tensor.static)
    wide.shape = tensor.shape
    parts = _cast(build, build.parts(tensor), tensor.dtype, dtype)
    build.give(ir.value(wide, PARTIAL), parts)
    return wide


def _cast(
    build: Build, references: References, source: tf.DType, target: tf.DType
) -> References:
    """References by replica to values that are cast where they are."""
    if source == target:
        return references
    if len(set(references)) == 1:
        place = build.place_of(references[0])
        return build.same(build.cast(references[0], source, target, place))
    return [
        build.cast(reference, source, target, place)
        for place, reference in enumerate(references)
    ]


def _all_gather(build: Build, gather: ir.AllGather) -> None:
    (source,), (made,) = gather.inputs, gather.outputs
    sharded = cast(Sharded, source.kind)
    parts = cast(Sequence[str], build.references(source))
    if gather.in_turns:
        parts = micro_batches.of_first(build, parts)
    if gather.after or gather.in_turns:
        parts = _delayed(build, gather, parts)
    write = micro_batches.gather
    if gather.in_turns:
        write = micro_batches.gather_in_turns
    build.hold(made, write(build, source.tensor, sharded, parts))


def _delayed(
    build: Build, gather: ir.AllGather, parts: Sequence[str]
) -> list[str]:
    """Parts that are there once other instructions have run."""
    attributes = {"T": gather.inputs[0].tensor.dtype}
    made: list[str] = []
    names = []
    for place, part in enumerate(parts):
        build.take_turn(gather, place)
        after = build.ran(gather.after, place)
        made += build.op("Identity", [part], attributes, place, "gather", after)
        names.append(build.writer.last)
    build.note_ran(gather, names)
    return made


def _reduce_scatter(build: Build, reduction: ir.ReduceScatter) -> None:
    parts, types = [], []
    for one in reduction.inputs:
        dtype = reduction.type_of(one)
        sent = []
        for place, r in enumerate(build.references(one)):
            build.take_turn(reduction, place)
            sent.append(build.cast(r, one.tensor.dtype, dtype, place))
        parts.append(sent)
        types.append(dtype)
    write = micro_batches.reduce_scatter
    if reduction.in_turns:
        write = micro_batches.reduce_scatter_in_turns
    shares = write(build, reduction, types, parts)
    for made, dtype, own in zip(reduction.outputs, types, shares):
        wanted = made.tensor.dtype
        build.hold(
            made,
            [
                build.cast(r, dtype, wanted, place)
                for place, r in enumerate(own)
            ],
        )


def _broadcast(build: Build, broadcast: ir.Broadcast) -> None:
    (source,), (made,) = broadcast.inputs, broadcast.outputs
    references = build.references(source)
    # What is made of it may depend on its size.
    build.give(made, build.replicas.agreed(build, references, source.tensor))


def _gather_counts(build: Build, gather: ir.GatherCounts) -> None:
    (source,), (made,) = gather.inputs, gather.outputs
    counts = build.replicas.gathered_counts(build, source.tensor)
    build.hold(made, build.same(counts))


# Without communication -------------------------------------------------------


def _require_equal_rows(build: Build, check: ir.RequireEqualRows) -> None:
    counts = [
        _rows_passed(build, one, symbol)
        for one, symbol in zip(check.inputs, check.rows)
    ]
    if check.passed is not None:
        total = build.replicas.total_rows(build, check.passed)
        counts = [
            [total] if isinstance(one.kind, Sharded) else numbers
            for one, numbers in zip(check.inputs, counts)
        ]
    vectors = [build.sizes.packed(numbers) for numbers in counts]
    attributes = {"T": tf.int32, "incompatible_shape_error": True}
    equal = build.op("Equal", vectors, attributes, HOST)[0]
    axis = build.constant([0], tf.int32, HOST)
    attributes = {"Tidx": tf.int32, "keep_dims": False}
    equal = build.op("All", [equal, axis], attributes, HOST)[0]
    build.require(equal, check.message)


def _rows_passed(
    build: Build, one: ir.Value, symbol: sizes.Symbol
) -> list[str]:
    """Rows of an input: one number, or one per local replica."""
    if symbol.is_entry:
        return [build.sizes.entry_of_value(symbol)]
    references = list(build.references(one))
    if not isinstance(one.kind, Sharded):
        references = references[:1]
    return [
        build.sizes.size(reference, one.tensor.dtype)
        for reference in references
    ]


def _alias(build: Build, alias: ir.Alias) -> None:
    build.hold(alias.outputs[0], build.references(alias.inputs[0]))


def _first_only(build: Build, part: ir.FirstOnly) -> None:
    (source,), (made,) = part.inputs, part.outputs
    whole, attributes = build.references(source), {"T": source.tensor.dtype}
    parts = [
        whole[place]
        if build.mesh.first + place == 0
        else build.op("ZerosLike", [whole[place]], attributes, place)[0]
        for place in range(build.mesh.num)
    ]
    build.hold(made, parts)


def _known_sizes(build: Build, known: ir.KnownSizes) -> None:
    (made,) = known.outputs
    vector = build.sizes.vector(made.tensor.value, made.tensor.dtype)
    build.hold(made, build.same(vector))


def _local_shape(build: Build, shape: ir.LocalShape) -> None:
    (made,) = shape.outputs
    sharded, dtype = cast(LocalSizes, made.kind).sharded, made.tensor.dtype
    axis, known = sharded.axis, shape.sizes
    if known is not None and known[axis] == -1:
        build.hold(made, build.same(build.constant(known, dtype, HOST)))
        return
    result = []
    for place in range(build.mesh.num):
        own = build.sizes.local(sharded, place)
        own = build.cast(own, tf.int32, dtype, HOST)
        if known is None:
            whole = build.references(shape.inputs[0])[0]
            result.append(_with_entry(build, whole, axis, own, dtype))
        else:
            entries = [
                own if n == axis else build.sizes.scalar(entry, dtype)
                for n, entry in enumerate(known)
            ]
            result.append(build.sizes.packed(entries, dtype))
    build.hold(made, result)


def _with_entry(
    build: Build, vector: str, index: int, entry: str, dtype: tf.DType
) -> str:
    """A vector with another entry."""
    indices = build.constant([[index]], tf.int32, HOST)
    updates = build.sizes.packed([entry], dtype)
    return build.op(
        "TensorScatterUpdate",
        [vector, indices, updates],
        {"T": dtype, "Tindices": tf.int32},
        HOST,
    )[0]


def _slice(build: Build, slice: ir.Slice) -> None:
    (source,), (made,) = slice.inputs, slice.outputs
    whole, sharded = build.references(source), cast(Sharded, made.kind)
    write = _rows_unless_one if slice.may_be_one else _rows
    rows = []
    for place in range(build.mesh.num):
        build.take_turn(slice, place)
        rows.append(write(build, made.tensor, whole[place], sharded, place))
    build.hold(made, rows)


def _rows(
    build: Build, tensor: Tensor, reference: str, sharded: Sharded, place: int
) -> str:
    start, count = build.sizes.bounds(sharded, place)
    shape, axis = tensor.shape, sharded.axis
    if sharded.outer == 1:
        return sliced(build, reference, axis, start, count, tensor.dtype)
    # Several blocks of all rows.
    rows = sizes.product([sharded.rows.size, sharded.inner])
    blocks = (*shape[:axis], sharded.outer, rows, *shape[axis + 1 :])
    where = build.place_of(reference)
    split = build.reshape(
        reference, build.sizes.vector(blocks), tensor.dtype, where
    )
    part = sliced(build, split, axis + 1, start, count, tensor.dtype)
    local = build.sizes.local(sharded, place)
    own = build.sizes.with_axis(shape, axis, local)
    return build.reshape(part, own, tensor.dtype, where)


def sliced(
    build: Build,
    reference: str,
    axis: int,
    start: str,
    count: str,
    dtype: tf.DType,
) -> str:
    """`count` elements of an axis from `start` on, where the value is."""
    end = build.sizes.plus(start, count)
    zero = build.sizes.scalar(0)
    first, last = (
        build.sizes.packed([zero] * axis + [bound]) for bound in (start, end)
    )
    strides = build.constant([1] * (axis + 1), tf.int32, HOST)
    in_front = (1 << axis) - 1  # These axes are taken wholly.
    return build.strided_slice(
        reference,
        first,
        last,
        strides,
        dtype,
        build.place_of(reference),
        begin_mask=in_front,
        end_mask=in_front,
    )


def _rows_unless_one(
    build: Build, tensor: Tensor, reference: str, sharded: Sharded, place: int
) -> str:
    """Rows of an axis; an axis of one element for all rows stays.

    One element for one row is that row: replicas without rows get none.
    """
    start, count = build.sizes.bounds(sharded, place)
    one, zero = build.sizes.scalar(1), build.sizes.scalar(0)
    own = cast(sizes.SizeLike, tensor.shape[sharded.axis])
    given = [build.sizes.scalar(s) for s in (own, sharded.size)]
    is_one = build.sizes.op("Less", *given)
    start, count = (
        build.sizes.op("SelectV2", is_one, if_one, otherwise)
        for if_one, otherwise in ((zero, start), (one, count))
    )
    return sliced(build, reference, sharded.axis, start, count, tensor.dtype)


# Micro-batches ---------------------------------------------------------------


def _micro_batch_rows(build: Build, rows: MicroBatchRows) -> None:
    (made,) = rows.outputs
    references = []
    for place in range(build.mesh.num):
        build.take_turn(rows, place)
        references.append(device_shares.passed_rows(build, made.tensor, place))
    build.hold(made, references)


def _accumulate(build: Build, sum: Accumulate) -> None:
    (source,), (made,) = sum.inputs, sum.outputs
    types = source.tensor.dtype, made.tensor.dtype
    parts = cast(Sequence[str], build.references(source))
    if isinstance(source.kind, PerReplica):
        parts = build.parts(source.tensor)
    number = build.mesh.micro_batches
    references: list[str] = []
    for first in range(0, build.mesh.num, number):
        totals: list[str] = []
        for place in range(first, first + number):
            build.take_turn(sum, place)
            totals.append(build.cast(parts[place], *types, place))
            totals = [combined(build, totals, types[1], sum.by, place)]
        references += totals * number
    build.give(made, references)


def _first_micro_batch_only(build: Build, part: FirstMicroBatchOnly) -> None:
    (source,), (made,) = part.inputs, part.outputs
    whole, attributes = build.references(source), {"T": source.tensor.dtype}
    if isinstance(source.kind, Sharded):
        first = list(whole)[:: build.mesh.micro_batches]
        own = micro_batches.first_only(build, made, first, made.tensor.dtype)
        build.give(made, own)
        return
    parts = [
        whole[place]
        if place % build.mesh.micro_batches == 0
        else build.op("ZerosLike", [whole[place]], attributes, place)[0]
        for place in range(build.mesh.num)
    ]
    build.give(made, parts)


# Tables -----------------------------------------------------------------------


def _look_up(build: Build, look_up: LookUp) -> None:
    with _varying(build):
        made = exchanges.look_up(build, look_up)
    build.give(look_up.outputs[0], made)


def _to_owners(build: Build, move: ToOwners) -> None:
    with _varying(build):
        build.hold(move.outputs[0], exchanges.to_owners(build, move))


@contextlib.contextmanager
def _varying(build: Build, vary: bool = True) -> Iterator[None]:
    """Notes that what is written has other sizes in every step."""
    before, build.writer.sizes_vary = build.writer.sizes_vary, vary
    yield
    build.writer.sizes_vary = before


def _region(build: Build, region: Region) -> None:
    regions.write(build, region, emit)


_EMIT: dict[type[ir.Instruction], Callable[[Build, Any], None]] = {
    ir.Alias: _alias,
    ir.AllGather: _all_gather,
    ir.AllReduce: _all_reduce,
    ir.Broadcast: _broadcast,
    ir.Constant: _constant,
    ir.FirstOnly: _first_only,
    ir.GatherCounts: _gather_counts,
    ir.KnownSizes: _known_sizes,
    ir.LocalShape: _local_shape,
    ir.Operation: _operation,
    ir.ReduceScatter: _reduce_scatter,
    Region: _region,
    ir.RequireEqualRows: _require_equal_rows,
    ir.Slice: _slice,
    ToOwners: _to_owners,
    Accumulate: _accumulate,
    FirstMicroBatchOnly: _first_micro_batch_only,
    LookUp: _look_up,
    MicroBatchRows: _micro_batch_rows,
}
