"""Replicas whose shares are worked through in micro-batches.

A micro-batch is a share of the rows like any other, but several shares have one
device. `Replicas` count shares; what devices send each other goes through the
replicas of devices that they were split from.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.graph import Tensor
from kerasmgpu.partitioner.kinds import Sharded
from kerasmgpu.partitioner.places import HOST

if TYPE_CHECKING:
    from kerasmgpu.partitioner.building import Build, References
    from kerasmgpu.partitioner.ir.instructions import ReduceScatter, Value
    from kerasmgpu.partitioner.replicas import Replicas


def split(replicas: "Replicas", micro_batches: int) -> "Replicas":
    """Replicas with several consecutive shares per device.

    Args:
        replicas: `replicas.Replicas` with a share per device.
        micro_batches: Shares of each device.

    Returns:
        `replicas` itself for one micro-batch.
    """
    if micro_batches == 1:
        return replicas
    shares = copy.copy(replicas)
    shares.devices = [
        name for name in replicas.devices for _ in range(micro_batches)
    ]
    shares.num, shares.total, shares.first = (
        number * micro_batches
        for number in (replicas.num, replicas.total, replicas.first)
    )
    shares.micro_batches = micro_batches
    shares.of_devices = replicas
    return shares


def first_on_device(replicas: "Replicas", place: int) -> int:
    """The place of the first micro-batch on the device of a place."""
    if place == HOST:
        return HOST
    return place // replicas.micro_batches * replicas.micro_batches


def reduce(
    build: "Build", tensors: Sequence[Tensor], by: str
) -> "Sequence[References]":
    """All-reduces partial tensors over the devices; see `Replicas.reduce`."""
    replicas = build.replicas
    if replicas.of_devices is None:
        return replicas.reduce(build, tensors, by)
    devices = build.of_devices(tensors, replicas.of_devices)
    return [
        [
            references[n]
            for n in range(devices.replicas.num)
            for _ in _turns(build)
        ]
        for references in devices.replicas.reduce(devices, tensors, by)
    ]


def gather(
    build: "Build", tensor: Tensor, sharded: Sharded, parts: Sequence[str]
) -> "References":
    """All-gathers rows, written once for each device; see `Replicas.gather`.

    Of a sharded variable each device has one part.
    """
    replicas = build.replicas
    if replicas.of_devices is None:
        return replicas.gather(build, tensor, sharded, parts)
    if replicas.of_devices.has_parts(tensor, sharded):
        devices = build.of_devices([], replicas.of_devices)
        first = parts[:: replicas.micro_batches]
        whole = devices.replicas.gather(devices, tensor, sharded, first)
        return [
            whole[n] for n in range(devices.replicas.num) for _ in _turns(build)
        ]
    gathered = replicas.gather(build, tensor, sharded, parts)
    if isinstance(gathered, list):
        return gathered
    return [
        gathered[first_on_device(replicas, place)]
        for place in range(replicas.num)
    ]


def reduce_scatter(
    build: "Build",
    reduction: "ReduceScatter",
    dtypes: Sequence[tf.DType],
    parts: Sequence[Sequence[str]],
) -> Sequence[Sequence[str]]:
    """Reduce-scatters over the devices; see `Replicas.reduce_scatter`.

    Args:
        build: The `Build`.
        reduction: The reduce-scatter; its outputs are sharded as variables.
        dtypes: Types in which its inputs are summed.
        parts: For each of its inputs, references by micro-batch.
    """
    replicas, outputs = build.replicas, reduction.outputs
    tensors = [one.tensor for one in reduction.inputs]
    kinds = [cast(Sharded, one.kind) for one in outputs]
    if replicas.of_devices is None:
        return replicas.reduce_scatter(build, tensors, dtypes, kinds, parts)
    devices = build.of_devices([], replicas.of_devices)
    first = [own[:: replicas.micro_batches] for own in parts]
    results = devices.replicas.reduce_scatter(
        devices, tensors, dtypes, kinds, first
    )
    return [
        first_only(build, one, own, dtype)
        for one, own, dtype in zip(outputs, results, dtypes)
    ]


def of_first(build: "Build", parts: Sequence[str]) -> list[str]:
    """By micro-batch, what the first one of its device has."""
    return [
        parts[first_on_device(build.replicas, place)]
        for place in range(build.replicas.num)
    ]


def gather_in_turns(
    build: "Build", tensor: Tensor, sharded: Sharded, parts: Sequence[str]
) -> "References":
    """All-gathers a variable over the devices, for each micro-batch anew.

    Args:
        build: The `Build`.
        tensor: The tensor.
        sharded: Its kind.
        parts: By micro-batch, its device's part.
    """
    made: list[str] = [""] * build.replicas.num
    for places, devices in each_turn(build):
        own = [parts[place] for place in places]
        whole = devices.replicas.gather(devices, tensor, sharded, own)
        for number, place in enumerate(places):
            made[place] = whole[number]
    return made


def reduce_scatter_in_turns(
    build: "Build",
    reduction: "ReduceScatter",
    dtypes: Sequence[tf.DType],
    parts: Sequence[Sequence[str]],
) -> Sequence[Sequence[str]]:
    """Reduce-scatters in each turn, and adds up; see `reduce_scatter`."""
    kinds = [cast(Sharded, one.kind) for one in reduction.outputs]
    tensors = [one.tensor for one in reduction.inputs]
    totals: dict[tuple[int, int], str] = {}
    for places, devices in each_turn(build):
        given = [[own[place] for place in places] for own in parts]
        made = devices.replicas.reduce_scatter(
            devices, tensors, dtypes, kinds, given
        )
        for number, dtype in enumerate(dtypes):
            for device, place in enumerate(places):
                build.take_turn(reduction, place)
                summed = [totals.get((number, device)), made[number][device]]
                references = [one for one in summed if one is not None]
                attributes = {"N": len(references), "T": dtype}
                totals[number, device] = build.op(
                    "AddN", references, attributes, place
                )[0]
    num_devices = build.replicas.num // build.replicas.micro_batches
    return [
        first_only(
            build,
            one,
            [totals[number, device] for device in range(num_devices)],
            dtype,
        )
        for number, (one, dtype) in enumerate(zip(reduction.outputs, dtypes))
    ]


def each_turn(build: "Build") -> "Iterator[tuple[range, Build]]":
    """For each turn its places, and the function with a place per device."""
    replicas = build.replicas
    if replicas.of_devices is None:
        yield range(replicas.num), build
        return
    phase, _ = build.time
    for turn in _turns(build):
        build.writer.turn, build.time = None, (phase, turn)
        yield (
            range(turn, replicas.num, replicas.micro_batches),
            build.of_devices([], replicas.of_devices),
        )
    build.writer.turn = None


def first_only(
    build: "Build", one: "Value", parts: Sequence[str], dtype: tf.DType
) -> list[str]:
    """Gives each device's part to its first micro-batch, and the others none."""
    made: list[str] = []
    shape: list[Any] = list(one.tensor.shape)
    shape[cast(Sharded, one.kind).axis] = 0
    for part in parts:
        made.append(part)
        for _ in _turns(build)[1:]:
            made.append(build.constant(np.zeros(shape), dtype, len(made)))
    return made


def pass_to_devices(
    build: "Build", tensor: Tensor, references: Sequence[str]
) -> Sequence[str]:
    """Records what each device was passed of an input.

    Returns:
        References by micro-batch, each to all rows of its device.
    """
    if build.replicas.micro_batches == 1:
        return references
    build.keep(("passed", tensor), lambda: list(references))
    return [one for one in references for _ in _turns(build)]


def passed_counts(build: "Build", tensor: Tensor) -> list[str]:
    """Rows of each micro-batch of an input that devices were passed."""
    counts = []
    for bounds in _passed_bounds(build, tensor):
        counts += [
            build.sizes.minus(end, start)
            for start, end in zip(bounds, bounds[1:])
        ]
    return counts


def passed_rows(build: "Build", tensor: Tensor, place: int) -> str:
    """A micro-batch's rows of an input that devices were passed."""
    device, turn = divmod(place, build.replicas.micro_batches)
    reference = build.keep(("passed", tensor), list)[device]
    start, end = _passed_bounds(build, tensor)[device][turn : turn + 2]
    return build.strided_slice(
        reference,
        build.sizes.packed([start]),
        build.sizes.packed([end]),
        build.sizes.packed([build.sizes.scalar(1)]),
        tensor.dtype,
        place,
    )


def _passed_bounds(build: "Build", tensor: Tensor) -> list[list[str]]:
    """For each device the bounds of its micro-batches; see `bounds_of`."""

    def bounds() -> list[list[str]]:
        return [
            _bounds(build, build.sizes.size(reference, tensor.dtype))
            for reference in build.keep(("passed", tensor), list)
        ]

    return build.keep(("passed bounds", tensor), bounds)


def _bounds(build: "Build", size: str) -> list[str]:
    sizes, number = build.sizes, build.replicas.micro_batches
    each = sizes.op("FloorDiv", size, sizes.scalar(number))
    rest = sizes.op("FloorMod", size, sizes.scalar(number))
    return [
        sizes.plus(
            sizes.times(sizes.scalar(turn), each),
            sizes.op("Minimum", sizes.scalar(turn), rest),
        )
        for turn in range(number + 1)
    ]


def _turns(build: "Build") -> range:
    return range(build.replicas.micro_batches)
