"""Writes TensorFlow's collectives: their keys, order and dynamic shapes."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.ir.lowered import Members
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.lengths import (
    padded,
    padded_length,
    product,
)
from kerasmgpu.partitioner.lowering.replicas import Replicas, Together
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import MeshAxes
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference

ALL_TO_ALL_BYTES = 1 << 16
"""Largest size in bytes that workers reduce by an all-to-all: one round, in
which each worker sends every other its whole value. A ring sends fewer bytes,
in 2 (workers - 1) rounds."""

_groups = itertools.count(70_000)


def new_groups(mesh: Mesh) -> dict[Members, list[int]]:
    """Returns group keys for a function that is yet to be written.

    Returns:
        `{(members, axes): keys}`, with a key for each line of the job along
        each mesh axis; for the axes `None`, a key for all of the members.
    """
    axes: list[MeshAxes | None] = [None]
    if len(mesh.axes) > 1:
        axes += [(axis,) for axis in range(len(mesh.axes))]
    return {
        (members, along): _new_keys(mesh, along)
        for members in ("replicas", "hosts")
        for along in axes
    }


def _new_keys(
    mesh: Mesh, along: MeshAxes | None, numbers: Iterator[int] | None = None
) -> list[int]:
    number = 1 if along is None else mesh.total // mesh.size(along)
    return [next(numbers or _groups) for _ in range(number)]


class Keys(NamedTuple):
    """Group size, group key and instance key of a collective.

    TensorFlow matches the nodes of a collective on all devices by these keys.
    """

    size: int
    group: int
    instance: int | Reference
    """An integer, or a reference to a scalar that the function computes."""


class Collectives(Replicas):
    """Replicas that write TensorFlow's collectives.

    Args:
        mesh: Their `mesh.Mesh`; `sums_are_copies` and `gathers_are_copies` are
            set here.
        hint: `"auto"`, `"nccl"` or `"ring"`: the all-reduce between replicas.
        timeout_seconds: Seconds after which a collective fails; `None`: never.
        all_gather: Function that takes a list of floats, of one length on all
            workers, and returns all lists, `[workers, floats]`. `None`: workers
            don't compare the collectives that they write.
        together: See `Replicas`.

    Attributes:
        group_numbers: Iterator that gives each group its key; `None`: that of
            the process.
    """

    group_numbers: Iterator[int] | None = None

    def __init__(
        self,
        mesh: Mesh,
        hint: str = "auto",
        timeout_seconds: float | None = None,
        all_gather: Callable[[Sequence[float]], np.ndarray] | None = None,
        together: Together | None = None,
    ) -> None:
        mesh = dataclasses.replace(
            mesh,
            sums_are_copies=not mesh.reduces_on_host_first,
            gathers_are_copies=mesh.num_workers == 1,
        )
        super().__init__(mesh, together)
        self.hint = hint
        self._timeout_seconds = timeout_seconds
        self._all_gather = all_gather

    def _reduced_over_hosts(
        self,
        build: Function,
        reference: Reference,
        elements: int | None,
        merge: str = "Add",
    ) -> Reference:
        """All-reduces one value per worker over the workers' hosts.

        Args:
            elements: Number of its elements; `None` for a dynamic shape.
            merge: `"Add"`, `"Max"` or `"Min"`.

        Returns:
            Reference to the result, on this worker's host.
        """
        dtype = reference.dtype
        keys = self.next_keys(build, "hosts", merge, elements, dtype)
        if build.clock is not None:
            build.clock.ready(reference)
        if elements is not None and elements * dtype.size <= ALL_TO_ALL_BYTES:
            total = self._all_to_all_reduce(build, reference, merge, keys)
        else:
            write = self._padded_reduce if elements is None else self._reduce_op
            total = write(build, reference, merge, HOST, keys)
        if build.clock is not None:
            build.clock.done(total)
        return total

    def _of_all(self, build: Function, own: Reference, rank: int) -> Reference:
        """All-gathers sizes of this worker's replicas (`own`) from all workers.

        Returns:
            Reference to `[replicas]`; to `[replicas, replicas]` if `rank` is 2.
        """
        mesh = self.mesh
        behind = mesh.total - mesh.first - mesh.num
        paddings = [[mesh.first, behind], [0, 0]][:rank]
        table = build.sizes.op("Pad", own, build.constant(paddings))
        return self._reduced_over_hosts(build, table, mesh.total**rank)

    def _all_to_all_reduce(
        self, build: Function, value: Reference, merge: str, keys: Keys
    ) -> Reference:
        """Reduces by an all-to-all of whole values, merged in workers' order."""
        number, op = self.mesh.num_workers, build.sizes.op
        received = self.collective_op(
            build,
            "CollectiveAllToAllV2",
            op("Pack", *[value] * number),
            HOST,
            keys,
        )
        values = build.op("Unpack", [received], HOST, num=number)
        if merge == "Add":
            return op("AddN", *values)
        type = "Maximum" if merge == "Max" else "Minimum"
        return functools.reduce(functools.partial(op, type), values)

    def next_keys(
        self,
        build: Function,
        members: str,
        merge: str,
        elements: int | None,
        dtype: tf.DType,
    ) -> Keys:
        """Returns keys of a new collective, and records it for `compare`.

        Each function has groups of its own; loops and branches share those of
        the enclosing function.

        Args:
            members: Which take part: `"replicas"` or `"hosts"`.
            merge: What the collective does, such as `"Add"` or `"Gather"`.
            elements: Number of elements of each member's value; `None` for a
                dynamic shape.
        """
        along, line = build.line
        while (outer := build.whole or build.parent) is not None:
            build = outer
        mesh = build.program.mesh
        recorded = build.keep("collectives", list)
        # Workers of other lines have other parts, and send no empty ones.
        if along is None or not mesh.has_lines_of_other_workers:
            recorded.append((members, merge, elements, dtype.name))
        groups = build.keep(
            ("groups", members, along),
            lambda: (
                build.program.groups.get((members, along))
                or _new_keys(mesh, along, self.group_numbers)
            ),
        )
        instances = build.keep(
            ("instances", members, along, line), lambda: itertools.count(1)
        )
        return Keys(self.num_members(members), groups[line], next(instances))

    def on_line(self, mesh: Mesh) -> Replicas:
        # Inside of a worker, replicas read each other's memory.
        is_inside = self.mesh.num_workers > 1 == mesh.num_workers
        if is_inside and mesh.shares_memory:
            return Replicas(mesh.of_devices).split(mesh.micro_batches)
        return super().on_line(mesh)

    def num_members(self, members: str) -> int:
        """Returns the number of all `"replicas"` or `"hosts"` of the job."""
        mesh = self.mesh
        return mesh.num_workers if members == "hosts" else mesh.total

    def _padded_reduce(
        self,
        build: Function,
        value: Reference,
        merge: str,
        place: int,
        keys: Keys,
    ) -> Reference:
        """Writes an all-reduce of a value of dynamic shape; see `lengths.py`."""
        number = build.sizes
        shape = number.shape(value)
        length = product(build, shape)
        longer, instance = padded_length(
            build, length, cast(int, keys.instance)
        )
        zero, one = number.scalar(0), number.scalar(1)
        flat = build.flat(value, place)
        flat = padded(build, flat, [zero, number.minus(longer, length)])
        keys = keys._replace(instance=instance)
        total = self._reduce_op(build, flat, merge, place, keys)
        bounds = [number.packed([bound]) for bound in (zero, length, one)]
        total = build.strided_slice(total, bounds)
        return build.reshape(total, shape)

    def _reduce_op(
        self,
        build: Function,
        value: Reference,
        merge: str,
        place: int,
        keys: Keys,
    ) -> Reference:
        """Writes an all-reduce of a value of static shape."""
        return self.collective_op(
            build,
            "CollectiveReduceV2",
            value,
            place,
            keys,
            communication_hint="ring" if place == HOST else self.hint,
            merge_op=merge,
            final_op="Id",
        )

    def collective_op(
        self,
        build: Function,
        type: str,
        value: Reference,
        place: int,
        keys: Keys,
        communication_hint: str = "ring",
        **attributes: str,
    ) -> Reference:
        """Writes a collective operation; returns its output.

        It waits for the collectives that it must follow, and is recorded for
        those that come later. GPUs have no collectives of int32 (TensorFlow
        2.18 to 2.21): such values are sent as int64, and cast back.

        Args:
            **attributes: Attributes besides those of all collectives.
        """
        dtype = value.dtype
        if dtype == tf.int32 and place != HOST and not self.mesh.shares_memory:
            value = build.cast(value, tf.int64, place)
        scalars = [
            build.constant(key) if isinstance(key, int) else key for key in keys
        ]
        controls = build.before_collective(place)
        controls.append(build.keep("concurrent", lambda: _concurrent(build)))
        where = "host" if place == HOST else f"replica_{place}"
        total = build.op(
            type,
            [value, *scalars],
            place,
            f"{where}/all_reduce",
            controls,
            timeout_seconds=float(self._timeout_seconds or 0),
            communication_hint=communication_hint,
            **attributes,
        )[0]
        build.note_collective(place, total.node)
        return build.cast(total, dtype)


def _concurrent(build: Function) -> str:
    """Writes a `Switch`, so that the function runs on several threads.

    TensorFlow (2.18 to 2.21) runs a function without control flow and without
    transfers between devices on one thread: it would wait in the first device's
    collective, and never start that of the second. Returns its name.
    """
    true = build.constant(True, tf.bool)
    return build.op("Switch", [true, true])[0].node
