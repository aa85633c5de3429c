"""Primitives between the members of a job, by TensorFlow's collectives.

All-reduce, all-gather and all-to-all of one value per member. What is sent is
packed and unpacked outside, in `packing.py`. TensorFlow's all-gather and
all-to-all take values of equal sizes; its `CollectiveReduceScatterV2` has a
kernel for NCCL only (TensorFlow 2.18 to 2.21).
"""

import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.ir.lowered import Members
from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.packing import padded
from kerasmgpu.partitioner.lowering.replicas import Agreement
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.rules.kinds import MeshAxes
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.references import Reference

ALL_TO_ALL_BYTES = 1 << 16
"""Largest size in bytes that workers reduce by an all-to-all: one round, in
which each worker sends every other its whole value. A ring sends fewer bytes,
in 2 (workers - 1) rounds."""

_MOST_COLLECTIVES = 1 << 16
"""Upper bound of the number of collectives of a function."""

_LENGTHS = sorted({max(1, (8 + n % 8) << n // 8 >> 3) for n in range(8 * 31)})
"""Lengths that vectors of dynamic length are padded to: by less than an eighth."""

_groups = itertools.count(70_000)


class Keys(NamedTuple):
    """Group size, group key and instance key of a collective.

    TensorFlow matches the nodes of a collective on all devices by these keys.
    """

    size: int
    group: int
    instance: int | Reference
    """An integer, or a reference to a scalar that the function computes."""


class Options(NamedTuple):
    """How collectives run.

    Attributes:
        hint: `"auto"`, `"nccl"` or `"ring"`: the all-reduce between replicas.
        timeout_seconds: Seconds after which a collective fails; 0: never.
        group_numbers: Iterator that gives each group its key; `None`: that of
            the process.
    """

    hint: str = "auto"
    timeout_seconds: float = 0.0
    group_numbers: Iterator[int] | None = None


class Communicator(NamedTuple):
    """Members that run collectives together: hosts, or replicas.

    Attributes:
        name: `"hosts"`, one of each worker, or `"replicas"`.
        size: Number of members of the job.
        own: Numbers of this process's members among all.
        places: Their places.
    """

    name: str
    size: int
    own: Sequence[int]
    places: Sequence[int]
    options: Options

    def all_reduce(
        self,
        build: Function,
        values: Sequence[Reference],
        elements: int | None,
        merge: str = "Add",
    ) -> list[Reference]:
        """Reduces the values of all members elementwise.

        Args:
            values: References by member of this process.
            elements: Elements of each; `None` for a dynamic shape.
            merge: `"Add"`, `"Max"` or `"Min"`.

        Returns:
            References to the result by member of this process.
        """
        dtype = values[0].dtype
        keys = self.keys(build, merge, elements, dtype)
        if build.clock is not None:
            build.clock.ready(values[0])
        write = self._reduce
        if elements is None:
            write = self._reduce_padded
        elif self.name == "hosts" and elements * dtype.size <= ALL_TO_ALL_BYTES:
            write = self._reduce_in_one_round
        totals = [
            write(build, value, merge, place, keys)
            for value, place in zip(values, self.places)
        ]
        build.writer.keep_all_or_none(totals)
        if build.clock is not None:
            build.clock.done(totals[0])
        return totals

    def all_gather(
        self, build: Function, values: Iterable[Reference], keys: Keys
    ) -> list[Reference]:
        """Gathers `[1, …]` of all members as `[members, …]`, by own member."""
        return self._together(build, "CollectiveGatherV2", values, keys)

    def all_to_all(
        self, build: Function, values: Iterable[Reference], keys: Keys
    ) -> list[Reference]:
        """Sends row n of each member's `[members, …]` to member n.

        Returns:
            What each member of this process receives, `[members, …]`.
        """
        return self._together(build, "CollectiveAllToAllV2", values, keys)

    def keys(
        self,
        build: Function,
        what: str,
        elements: int | None,
        dtype: tf.DType,
    ) -> Keys:
        """Returns keys of a new collective, and records it; see `require_equal`.

        Each function has groups of its own; loops and branches share those of
        the enclosing function.

        Args:
            what: What the collective does, such as `"Add"` or `"Gather"`.
            elements: Number of elements of each member's value; `None` for a
                dynamic shape.
        """
        along, line = build.line
        while (outer := build.whole or build.parent) is not None:
            build = outer
        mesh = build.program.mesh
        # Workers of other lines have other parts, and send no empty ones.
        if along is None or not mesh.has_lines_of_other_workers:
            written = build.keep("collectives", list)
            written.append((self.name, what, elements, dtype.name))
        groups = build.keep(
            ("groups", self.name, along),
            lambda: (
                build.program.form.groups.get((self.name, along))
                or _new_keys(mesh, along, self.options.group_numbers)
            ),
        )
        instances = build.keep(
            ("instances", self.name, along, line), lambda: itertools.count(1)
        )
        return Keys(self.size, groups[line], next(instances))

    def padded_length(
        self, build: Function, length: Reference, keys: Keys
    ) -> tuple[Reference, Keys]:
        """Rounds a length up to one of `_LENGTHS`, when the function runs.

        TensorFlow caches the shape of a collective by its keys, so each length
        has an instance key of its own.

        Returns:
            Reference to the new length, and its own keys.
        """
        number, lengths = build.sizes, build.constant(_LENGTHS)
        is_less = build.cast(number.op("Less", lengths, length), tf.int32)
        index = number.reduced("Sum", is_less)
        others = number.times(index, number.scalar(_MOST_COLLECTIVES))
        instance = number.scalar(cast(int, keys.instance))
        keys = keys._replace(instance=number.plus(instance, others))
        return number.entry_at(lengths, index), keys

    def _reduce(
        self,
        build: Function,
        value: Reference,
        merge: str,
        place: int,
        keys: Keys,
    ) -> Reference:
        return self._write(
            build,
            "CollectiveReduceV2",
            value,
            place,
            keys,
            communication_hint="ring" if place == HOST else self.options.hint,
            merge_op=merge,
            final_op="Id",
        )

    def _reduce_padded(
        self,
        build: Function,
        value: Reference,
        merge: str,
        place: int,
        keys: Keys,
    ) -> Reference:
        """Writes an all-reduce of a value of dynamic shape."""
        number = build.sizes
        shape = number.shape(value)
        length = number.product(shape)
        longer, keys = self.padded_length(build, length, keys)
        zero, one = number.scalar(0), number.scalar(1)
        flat = build.flat(value, place)
        flat = padded(build, flat, [zero, number.minus(longer, length)])
        total = self._reduce(build, flat, merge, place, keys)
        bounds = [number.packed([bound]) for bound in (zero, length, one)]
        total = build.strided_slice(total, bounds)
        return build.reshape(total, shape)

    def _reduce_in_one_round(
        self,
        build: Function,
        value: Reference,
        merge: str,
        place: int,
        keys: Keys,
    ) -> Reference:
        """Reduces by an all-to-all of whole values, merged in members' order."""
        op = build.sizes.op
        copies = op("Pack", *[value] * self.size)
        received = self._write(
            build, "CollectiveAllToAllV2", copies, place, keys
        )
        values = build.op("Unpack", [received], place, num=self.size)
        if merge == "Add":
            return op("AddN", *values)
        type = "Maximum" if merge == "Max" else "Minimum"
        return functools.reduce(functools.partial(op, type), values)

    def _together(
        self,
        build: Function,
        type: str,
        values: Iterable[Reference],
        keys: Keys,
    ) -> list[Reference]:
        written = [
            self._write(build, type, value, place, keys)
            for value, place in zip(values, self.places)
        ]
        build.writer.keep_all_or_none(written)
        return written

    def _write(
        self,
        build: Function,
        type: str,
        value: Reference,
        place: int,
        keys: Keys,
        communication_hint: str = "ring",
        **attributes: str,
    ) -> Reference:
        """Writes a member's node of a collective; returns its output.

        It waits for the collectives that it must follow, and is recorded for
        those that come later. GPUs have no collectives of int32 (TensorFlow
        2.18 to 2.21): such values are sent as int64, and cast back.

        Args:
            **attributes: Attributes besides those of all collectives.
        """
        dtype = value.dtype
        if dtype == tf.int32 and place != HOST and not build.mesh.shares_memory:
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
            timeout_seconds=self.options.timeout_seconds,
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


def require_equal(
    build: Function, agreement: Agreement | None, name: str
) -> bool:
    """Raises `InputError` if workers have written different collectives.

    Such collectives would deadlock, or sum values that don't correspond.

    Args:
        name: Name of the function, for the message.

    Returns:
        Boolean, whether workers have been compared: all of them are here.
    """
    written = build.keep("collectives", list)
    if agreement is None or not written:
        return False  # Nothing to compare between workers.
    number = agreement.first_difference(list(map(_hash, written)))
    if number is None:
        return True
    own = "none"
    if number < len(written):
        members, what, elements, dtype = written[number]
        own = f"{what} of {elements or 'some'} {dtype} between {members}"
    mesh = build.program.mesh
    raise InputError(
        "All workers must run the same collectives. Received: "
        f"{name!r}, whose collective number {number + 1} differs between "
        f"workers; on worker {mesh.worker} of {mesh.num_workers} it is: "
        f"{own}. Look for code that depends on the worker's number or on "
        "the order of a set."
    )


def _hash(value: object) -> int:
    """Returns a hash that is equal in all processes, and exact as a float64."""
    digest = hashlib.sha256(repr(value).encode()).digest()
    return int.from_bytes(digest[:6], "big")
