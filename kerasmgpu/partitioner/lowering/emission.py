"""Writes a program as a `FunctionDef`, instruction by instruction."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf

from kerasmgpu.partitioner.ir import instructions as ir
from kerasmgpu.partitioner.ir.exchanges import AllToAll, LookUp, ToOwners
from kerasmgpu.partitioner.ir.lowered import Call, Lowered, Region
from kerasmgpu.partitioner.ir.micro_batches import (
    Accumulate,
    FirstMicroBatchOnly,
    MicroBatchRows,
)
from kerasmgpu.partitioner.lowering import (
    device_shares,
    empty_shares,
    exchanges,
    halos,
    lines,
    micro_batches,
    outlined,
    regions,
    windows,
)
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.function_writer import References
from kerasmgpu.partitioner.lowering.once import runs_once
from kerasmgpu.partitioner.lowering.operations import writer_of
from kerasmgpu.partitioner.lowering.replicas import combined
from kerasmgpu.partitioner.mesh import first_on_device
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.rules import tables
from kerasmgpu.partitioner.rules.kinds import (
    LocalSizes,
    PerReplica,
    Sharded,
    WithHalo,
)
from kerasmgpu.partitioner.rules.table import ON_WINDOWS
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.places import HOST, OnEachPlace
from kerasmgpu.partitioner.step.references import Reference

_ALONG_AN_AXIS = (
    ir.AllGather,
    ir.AllReduce,
    ir.FirstOnly,
    ir.ReduceScatter,
    ir.SendRows,
    ir.Slice,
    AllToAll,
    LookUp,
    ToOwners,
)
"""Instructions that change kinds along one axis of the mesh."""


def emit(build: Build, program: Lowered) -> None:
    """Writes all instructions of a program; `build` must have its inputs."""
    for instruction in program.instructions:
        write = _EMIT[type(instruction)]
        with build.writer.at(
            time=(program.turn_of(instruction)[0], -1),
            once=runs_once(program, instruction),
            on_host=instruction in program.on_host,
        ):
            if isinstance(instruction, _ALONG_AN_AXIS):
                lines.on_each(build, instruction, write)
            else:
                write(build, instruction)


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
    # Known sizes are computed on demand, from symbols, not read from nodes.
    note = build.hold if is_known(operation.node) else build.give
    for one, references in zip(operation.outputs, outputs):
        note(one, references)


def _once(
    build: Build, operation: ir.Operation, inputs: list[References]
) -> list[References]:
    place = operation.home
    # Waits for the control inputs of all replicas.
    with build.writer.at(span=build.mesh.num):
        arguments = [_at(build, place, references) for references in inputs]
        made = build.copy(operation.node, arguments, place)
    build.note_done(operation.node)
    return [build.same(reference) for reference in made]


def _on_each(
    build: Build, operation: ir.Operation, inputs: list[References]
) -> list[References]:
    node, plans = operation.node, operation.plans
    write: Callable[..., list[Reference]]
    if any(one.emit in ON_WINDOWS for one in plans):
        plan, is_guarded = plans[0], operation.is_guarded
        write = functools.partial(windows.write, plans, is_guarded)
    else:
        write, plan = writer_of(plans)
        if operation.is_guarded:
            write = functools.partial(empty_shares.write, plans)
    varies = any(map(tables.has_varying_sizes, plans))
    outputs: list[list[Reference]] = [[] for _ in node.outputs]
    names = []
    is_each = operation.runs is ir.Runs.ON_EACH
    span = 1 if is_each else build.mesh.micro_batches
    build.writer.move(
        span=span,
        is_same=not any(one.is_local for one in operation.outputs),
    )
    for place in range(0, build.mesh.num, span):
        build.take_turn(operation, place)
        arguments = [_at(build, place, references) for references in inputs]
        with build.writer.at(sizes_vary=varies):
            made = write(build, node, plan, place, arguments)
        names.append(build.note_done(node))
        # `Function.controls` looks a node up by micro-batch.
        for _ in range(1, span):
            build.note_done(node)
        for references, reference in zip(outputs, made):
            references += [reference] * span
    build.note_ran(operation, names)
    if operation.runs is ir.Runs.ON_COPIES:
        build.twins.update(dict.fromkeys(names, names))
    return list(outputs)


def _at(build: Build, place: int, references: References) -> Reference:
    """Returns the reference that an operation at a place takes.

    On the host it takes constants of the host.
    """
    if build.writer.cursor.on_host and isinstance(references, OnEachPlace):
        return references[HOST]
    return references[place]


# Communication ---------------------------------------------------------------


def _all_reduce(build: Build, reduction: ir.AllReduce) -> None:
    tensors, parts = [], []
    for one in reduction.inputs:
        tensor, dtype = one.tensor, reduction.type_of(one)
        own = _cast(build, build.parts(tensor), dtype)
        if dtype != tensor.dtype:
            tensor = ir.alike(tensor, widens=True)
        tensors.append(tensor)
        parts.append(cast(Sequence[Reference], own))
    totals = micro_batches.reduce(build, tensors, parts, reduction.by)
    for one, references in zip(reduction.outputs, totals):
        build.hold(one, _cast(build, references, one.tensor.dtype))


def _cast(build: Build, references: References, target: tf.DType) -> References:
    """Casts a value on each replica; once, if all references are the same."""
    if references[0].dtype == target:
        return references
    if len(set(references)) == 1:
        place = build.place_of(references[0])
        return build.same(build.cast(references[0], target, place))
    return [
        build.cast(reference, target, place)
        for place, reference in enumerate(references)
    ]


def _all_gather(build: Build, gather: ir.AllGather) -> None:
    whole = []
    for one in gather.gathered:
        parts = cast(Sequence[Reference], build.references(one))
        if gather.in_turns:
            parts = micro_batches.of_first(build, parts)
        if gather.after or gather.in_turns:
            parts = _delayed(build, gather, parts)
        write = micro_batches.gather
        if gather.in_turns:
            write = micro_batches.gather_in_turns
        whole.append(write(build, one, parts))
    (made,) = gather.outputs
    if gather.restoring is None:
        build.hold(made, whole[0])
        return
    whole += map(build.references, gather.inputs[len(whole) :])
    build.hold(made, _restored(build, gather, whole))


def _restored(
    build: Build, gather: ir.AllGather, whole: Sequence[References]
) -> References:
    """Computes a weight from the whole inputs of its all-gather.

    On each replica, or once for those that have the same gathered values.
    """
    restoring = cast(ir.Restoring, gather.restoring)
    gathered = whole[: len(gather.gathered)]
    found: dict[tuple[Reference, ...], Reference] = {}

    def restored(place: int) -> Reference:
        key = tuple(references[place] for references in gathered)
        if key not in found:
            values = {
                one: references[place]
                for one, references in zip(restoring.reads, whole)
            }
            for node in restoring.nodes:
                inputs = [values[one] for one in node.inputs]
                made = build.copy(node, inputs, place)
                values |= zip(node.outputs, made)
            found[key] = values[restoring.makes]
        return found[key]

    if any(isinstance(references, OnEachPlace) for references in gathered):
        return OnEachPlace(lambda place: restored(max(place, 0)))
    made = []
    for place in range(build.mesh.num):
        if gather.in_turns:
            build.take_turn(gather, place)
        made.append(restored(place))
    return made


def _delayed(
    build: Build, gather: ir.AllGather, parts: Sequence[Reference]
) -> list[Reference]:
    """Copies parts by `Identity` nodes that wait for `gather.after`."""
    made: list[Reference] = []
    names = []
    for place, part in enumerate(parts):
        build.take_turn(gather, place)
        after = build.ran(gather.after, place)
        made += build.op("Identity", [part], place, "gather", after)
        names.append(build.writer.last)
    build.note_ran(gather, names)
    return made


def _reduce_scatter(build: Build, reduction: ir.ReduceScatter) -> None:
    parts = []
    for one in reduction.inputs:
        sent = []
        for place, reference in enumerate(build.references(one)):
            build.take_turn(reduction, place)
            sent.append(build.cast(reference, reduction.type_of(one), place))
        parts.append(sent)
    write = micro_batches.reduce_scatter
    if reduction.in_turns:
        write = micro_batches.reduce_scatter_in_turns
    shares = write(build, reduction, parts)
    for made, own in zip(reduction.outputs, shares):
        wanted = [made.tensor.dtype] * len(own)
        build.hold(made, list(map(build.cast, own, wanted, range(len(own)))))


def _send_rows(build: Build, sending: ir.SendRows) -> None:
    (one,), (made,) = sending.inputs, sending.outputs
    parts = cast(Sequence[Reference], build.references(one))
    wanted = cast(Sharded | WithHalo, made.kind)
    build.take_turn(sending, 0)
    joined = halos.sent(build, one, wanted, parts)
    build.hold(made, joined)
    build.note_ran(sending, [reference.node for reference in joined])


def _join_again(build: Build, joining: ir.JoinAgain) -> None:
    (given, *parts), (made,) = joining.inputs, joining.outputs
    part, its_copy = map(build.references, parts or (given, given))
    joined = []
    for place, reference in enumerate(build.references(given)):
        build.take_turn(joining, place)
        after = build.ran(joining.after, place)
        copies = {part[place]: its_copy[place]}
        joined.append(build.concat_again(reference, copies, after))
    build.hold(made, joined)
    build.note_ran(joining, [reference.node for reference in joined])


def _broadcast(build: Build, broadcast: ir.Broadcast) -> None:
    (source,), (made,) = broadcast.inputs, broadcast.outputs
    references = build.references(source)
    # `give`, not `hold`: sizes can be read from it.
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
            [total] if one.has(Sharded) else numbers
            for one, numbers in zip(check.inputs, counts)
        ]
    vectors = [build.sizes.packed(numbers) for numbers in counts]
    equal = build.sizes.op("Equal", *vectors)
    equal = build.sizes.op("All", equal, build.constant([0]))
    build.require(equal, check.message)


def _rows_passed(
    build: Build, one: ir.Value, symbol: sizes.Symbol
) -> list[Reference]:
    """Returns references to an input's number of rows.

    One number, or one per replica if the input is sharded.

    Args:
        one: The input; if `symbol.is_entry`, the vector of sizes that holds the
            number, such as a sparse tensor's dense shape.
        symbol: The symbol of the number of rows.
    """
    if symbol.is_entry:
        return [build.sizes.entry_of_value(symbol)]
    references = list(build.references(one))
    if not one.has(Sharded):
        references = references[:1]
    _, axis = symbol.source
    return [build.sizes.size(reference, axis) for reference in references]


def _alias(build: Build, alias: ir.Alias) -> None:
    build.hold(alias.outputs[0], build.references(alias.inputs[0]))


def _first_only(build: Build, part: ir.FirstOnly) -> None:
    whole, mesh = build.references(part.inputs[0]), build.mesh
    (every,) = mesh.planning_axes
    others = tuple(axis for axis in every if axis not in part.summed)
    is_first = [mesh.index(place, others) == 0 for place in range(mesh.num)]
    if build.program.form.is_compiled:
        # XLA compiles one function for all replicas, which is passed whether it
        # runs on the job's first one.
        made = [
            build.value_if(is_its, whole[place], place)
            for place, is_its in enumerate(is_first)
        ]
    else:
        its = [place for place, is_its in enumerate(is_first) if is_its]
        made = _zeros_but(build, whole, its)
    note = build.give if part.summed else build.hold
    note(part.outputs[0], made)


def _zeros_but(
    build: Build, whole: References, places: Sequence[int]
) -> list[Reference]:
    """Returns a value at some places, and zeros of its shape at the others."""
    return [
        whole[place]
        if place in places
        else build.op("ZerosLike", [whole[place]], place)[0]
        for place in range(build.mesh.num)
    ]


def _known_sizes(build: Build, known: ir.KnownSizes) -> None:
    (made,) = known.outputs
    # On the host, one reference for all replicas.
    vector = build.sizes.vector(made.tensor.value, made.tensor.dtype)
    build.hold(made, build.same(vector))


def _local_shape(build: Build, shape: ir.LocalShape) -> None:
    (made,) = shape.outputs
    dtype, known = made.tensor.dtype, shape.sizes
    divided: dict[int, list[Sharded]] = {}
    for kind in made.placement:
        if isinstance(kind, LocalSizes):
            divided.setdefault(kind.sharded.axis, []).append(kind.sharded)
    if known is not None and -1 in map(known.__getitem__, divided):
        build.hold(made, build.same(build.constant(known, dtype)))
        return
    result = []
    for place in range(build.mesh.num):
        own = {
            axis: build.cast(build.sizes.of_axis(kinds, place), dtype)
            for axis, kinds in divided.items()
        }
        if known is None:
            vector = build.references(shape.inputs[0])[0]
            for axis, size in own.items():
                vector = _with_entry(build, vector, axis, size)
            result.append(vector)
        else:
            entries = [
                own[n] if n in own else build.sizes.scalar(entry, dtype)
                for n, entry in enumerate(known)
            ]
            result.append(build.sizes.packed(entries))
    build.hold(made, result)


def _with_entry(
    build: Build, vector: Reference, index: int, entry: Reference
) -> Reference:
    """Returns a copy of a vector whose entry at `index` is replaced."""
    indices, updates = build.constant([[index]]), build.sizes.packed([entry])
    return build.sizes.op("TensorScatterUpdate", vector, indices, updates)


def _copy(build: Build, copy: ir.ToHost | ir.ToDevice) -> None:
    """Copies a value between the host and the replicas' devices."""
    (source,), (made,) = copy.inputs, copy.outputs
    name = "to_host" if isinstance(copy, ir.ToHost) else "to_device"
    copies: dict[tuple[str, str], Reference] = {}
    references = []
    for place, reference in enumerate(build.references(source)):
        key = reference, build.mesh.devices[place]
        if key not in copies:
            (copies[key],) = build.op("Identity", [reference], place, name)
        references.append(copies[key])
    build.give(made, references)


def _slice(build: Build, slice: ir.Slice) -> None:
    (source,), (made,) = slice.inputs, slice.outputs
    whole = build.references(source)
    write = _rows_unless_one if slice.may_be_one else _rows
    rows = []
    for place in range(build.mesh.num):
        build.take_turn(slice, place)
        rows.append(write(build, made, whole[place], place))
    build.hold(made, rows)


def _rows(
    build: Build, made: ir.Value, reference: Reference, place: int
) -> Reference:
    shape = made.tensor.shape
    if isinstance(made.kind, WithHalo):
        wanted = build.mesh.range_at(made.kind, place)
        return halos.cut(build, reference, made.kind.axis, wanted)
    sharded = made.sharded
    start, count = build.sizes.bounds(sharded, place)
    axis = sharded.axis
    if sharded.outer == 1:
        return halos.sliced(build, reference, axis, start, count)
    # Several blocks of all rows.
    rows = sizes.product([sharded.rows.size, sharded.inner])
    blocks = (*shape[:axis], sharded.outer, rows, *shape[axis + 1 :])
    where = build.place_of(reference)
    split = build.reshape(reference, build.sizes.vector(blocks), where)
    part = halos.sliced(build, split, axis + 1, start, count)
    local = build.sizes.local(sharded, place)
    return build.reshape(part, build.sizes.with_axis(shape, axis, local))


def _rows_unless_one(
    build: Build, made: ir.Value, reference: Reference, place: int
) -> Reference:
    """Slices a replica's rows; keeps a single element that all rows share.

    If there is only one row in all, the element is that row, and is sliced:
    replicas without rows get none.
    """
    sharded = made.sharded
    start, count = build.sizes.bounds(sharded, place)
    one, zero = build.sizes.scalar(1), build.sizes.scalar(0)
    own = cast(sizes.SizeLike, made.tensor.shape[sharded.axis])
    given = [build.sizes.scalar(s) for s in (own, sharded.size)]
    is_one = build.sizes.op("Less", *given)
    start = build.sizes.op("SelectV2", is_one, zero, start)
    count = build.sizes.op("SelectV2", is_one, one, count)
    return halos.sliced(build, reference, sharded.axis, start, count)


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
    parts = cast(Sequence[Reference], build.references(source))
    if isinstance(source.placement[0], PerReplica):
        parts = build.parts(source.tensor)
    number = build.mesh.micro_batches
    references: list[Reference] = []
    for first in range(0, build.mesh.num, number):
        totals: list[Reference] = []
        for place in range(first, first + number):
            build.take_turn(sum, place)
            totals.append(build.cast(parts[place], made.tensor.dtype, place))
            totals = [combined(build, totals, sum.by, place)]
        references += totals * number
    build.give(made, references)


def _first_micro_batch_only(build: Build, part: FirstMicroBatchOnly) -> None:
    (source,), (made,) = part.inputs, part.outputs
    whole, each = build.references(source), build.mesh.micro_batches
    if isinstance(source.placement[0], Sharded):
        own = micro_batches.first_only(build, made, list(whole)[::each])
    else:
        own = _zeros_but(build, whole, range(0, build.mesh.num, each))
    build.give(made, own)


# Tables -----------------------------------------------------------------------


def _look_up(build: Build, look_up: LookUp) -> None:
    with build.writer.at(sizes_vary=True):
        made = exchanges.look_up(build, look_up)
    build.give(look_up.outputs[0], made)


def _all_to_all(build: Build, exchange: AllToAll) -> None:
    build.hold(exchange.outputs[0], exchanges.all_to_all(build, exchange))


def _to_owners(build: Build, move: ToOwners) -> None:
    with build.writer.at(sizes_vary=True):
        build.hold(move.outputs[0], exchanges.to_owners(build, move))


def _region(build: Build, region: Region) -> None:
    regions.write(build, region, emit)


def _call(build: Build, call: Call) -> None:
    outlined.write(build, call, emit)


_EMIT: dict[type[ir.Instruction], Callable[[Build, Any], None]] = {
    ir.Alias: _alias,
    AllToAll: _all_to_all,
    ir.AllGather: _all_gather,
    ir.AllReduce: _all_reduce,
    ir.Broadcast: _broadcast,
    Call: _call,
    ir.Constant: _constant,
    ir.FirstOnly: _first_only,
    ir.GatherCounts: _gather_counts,
    ir.JoinAgain: _join_again,
    ir.KnownSizes: _known_sizes,
    ir.LocalShape: _local_shape,
    ir.Operation: _operation,
    ir.ReduceScatter: _reduce_scatter,
    Region: _region,
    ir.RequireEqualRows: _require_equal_rows,
    ir.SendRows: _send_rows,
    ir.Slice: _slice,
    ir.ToDevice: _copy,
    ir.ToHost: _copy,
    ToOwners: _to_owners,
    Accumulate: _accumulate,
    FirstMicroBatchOnly: _first_micro_batch_only,
    LookUp: _look_up,
    MicroBatchRows: _micro_batch_rows,
}
