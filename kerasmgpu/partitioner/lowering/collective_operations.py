"""TensorFlow's collective operations: their keys, their order, dynamic shapes."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
import tensorflow as tf

from kerasmgpu.partitioner.lowering.function_writer import Function
from kerasmgpu.partitioner.lowering.lengths import (
    instance_of,
    padded,
    padded_length,
    product,
)
from kerasmgpu.partitioner.lowering.replicas import Replicas, Together
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.step.definitions import Attributes
from kerasmgpu.partitioner.step.places import HOST

ALL_TO_ALL_BYTES = 1 << 16
"""Bytes up to which workers reduce by an all-to-all: one round, in which each
worker sends every other its whole value. A ring sends fewer bytes, in
2 (workers - 1) rounds."""

_groups = itertools.count(70_000)


class Keys(NamedTuple):
    """Group size, group key and instance key of a collective.

    TensorFlow matches the nodes of a collective on all devices by these keys.
    """

    size: int
    group: int
    instance: int | str
    """A number, or a reference to one."""


class Collectives(Replicas):
    """Replicas that write TensorFlow's collectives.

    Args:
        mesh: Their `mesh.Mesh`.
        hint: `"auto"`, `"nccl"` or `"ring"`: the all-reduce between replicas.
        timeout_seconds: Seconds after which a collective fails; `None`: never.
        all_gather: Function that takes a list of floats, of one length on all
            workers, and returns all lists, `[workers, floats]`. `None`: workers
            don't compare the collectives that they write.
        together: See `Replicas`.
    """

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
        reference: str,
        dtype: tf.DType,
        elements: int | None,
        merge: str = "Add",
    ) -> str:
        """All-reduces one value per worker over the workers' hosts."""
        keys = self.next_keys(
            build, "hosts", self.mesh.num_workers, merge, elements, dtype
        )
        if build.clock is not None:
            build.clock.ready(reference, dtype)
        if elements is not None and elements * dtype.size <= ALL_TO_ALL_BYTES:
            total = self._all_to_all_reduce(
                build, reference, dtype, merge, keys
            )
        else:
            write = self._padded_reduce if elements is None else self._reduce_op
            total = write(build, reference, dtype, merge, HOST, keys, "ring")
        if build.clock is not None:
            build.clock.done(total, dtype)
        return total

    def _all_to_all_reduce(
        self,
        build: Function,
        value: str,
        dtype: tf.DType,
        merge: str,
        keys: Keys,
    ) -> str:
        """An all-to-all of whole values, merged by each worker in one order."""
        many = {"N": self.mesh.num_workers, "T": dtype}
        copies = [value] * self.mesh.num_workers
        sent = build.op("Pack", copies, {**many, "axis": 0}, HOST)[0]
        received = self.collective_op(
            build, "CollectiveAllToAllV2", sent, {"T": dtype}, HOST, keys
        )
        attributes = {"num": self.mesh.num_workers, "T": dtype, "axis": 0}
        values = build.op("Unpack", [received], attributes, HOST)
        if merge == "Add":
            return build.op("AddN", values, many, HOST)[0]
        type = "Maximum" if merge == "Max" else "Minimum"
        return functools.reduce(
            lambda one, other: build.op(type, [one, other], {"T": dtype}, HOST)[
                0
            ],
            values,
        )

    def next_keys(
        self,
        build: Function,
        members: str,
        size: int,
        merge: str,
        elements: int | None,
        dtype: tf.DType,
    ) -> Keys:
        """Group and instance keys of a new collective, which it records.

        Each function has groups of its own; loops and branches share those of
        the enclosing function.

        Args:
            build: The `Function`.
            members: `"replicas"` or `"hosts"`.
            size: Number of members.
            merge: See `_reduced_over_replicas`.
            elements: See `_reduced_over_replicas`.
            dtype: Type of the values.
        """
        while build.parent is not None:
            build = build.parent
        recorded = build.keep("collectives", list)
        recorded.append((members, merge, elements, dtype.name))
        group, instances = build.keep(
            ("keys", members), lambda: (next(_groups), itertools.count(1))
        )
        return Keys(size, group, next(instances))

    def _padded_reduce(
        self,
        build: Function,
        value: str,
        dtype: tf.DType,
        merge: str,
        place: int,
        keys: Keys,
        hint: str,
    ) -> str:
        """Writes an all-reduce of a value of dynamic shape; see `lengths.py`."""
        number = build.sizes
        shape = number.shape(value, dtype)
        length = product(build, shape)
        longer, index = padded_length(build, length)
        rest = number.minus(longer, length)
        zero, one = number.scalar(0), number.scalar(1)
        flat = build.flat(value, dtype, place)
        flat = padded(build, flat, [zero, rest], dtype, place)
        keys = keys._replace(
            instance=instance_of(build, cast(int, keys.instance), index)
        )
        total = self._reduce_op(build, flat, dtype, merge, place, keys, hint)
        begin, end, strides = (
            number.packed([bound]) for bound in (zero, length, one)
        )
        total = build.strided_slice(total, begin, end, strides, dtype, place)
        return build.reshape(total, shape, dtype, place)

    def _reduce_op(
        self,
        build: Function,
        value: str,
        dtype: tf.DType,
        merge: str,
        place: int,
        keys: Keys,
        hint: str,
    ) -> str:
        """Writes an all-reduce of a value of static shape."""
        attributes = {
            "T": dtype,
            "merge_op": merge,
            "final_op": "Id",
            "communication_hint": hint,
            "max_subdivs_per_device": -1,
        }
        return self.collective_op(
            build, "CollectiveReduceV2", value, attributes, place, keys
        )

    def collective_op(
        self,
        build: Function,
        type: str,
        value: str,
        attributes: Attributes,
        place: int,
        keys: Keys,
    ) -> str:
        """Writes a collective operation; returns its output.

        GPUs have no collectives of int32 (TensorFlow 2.18 to 2.21): values are
        sent as int64.

        Args:
            build: The `Function`.
            type: Type of the operation.
            value: Its input.
            attributes: Attributes besides those of all collectives.
            place: Its place.
            keys: See `next_keys`.
        """
        dtype = attributes["T"]
        if dtype == tf.int32 and place != HOST and not self.mesh.shares_memory:
            value = build.cast(value, dtype, tf.int64, place)
            attributes = {**attributes, "T": tf.int64}
            total = self.collective_op(
                build, type, value, attributes, place, keys
            )
            return build.cast(total, tf.int64, dtype, place)
        scalars = [
            build.constant(key, tf.int32, HOST) if isinstance(key, int) else key
            for key in keys
        ]
        attributes = {
            "timeout_seconds": float(self._timeout_seconds or 0),
            "is_stateless": False,
            "Nordering_token": 0,
            "communication_hint": "ring",
            **attributes,
        }
        controls = build.before_collective(place)
        controls.append(build.keep("concurrent", lambda: _concurrent(build)))
        outputs = build.op(
            type,
            [value, *scalars],
            attributes,
            place,
            f"replica_{place}/all_reduce"
            if place != HOST
            else "host/all_reduce",
            controls,
        )
        build.note_collective(place, build.writer.last)
        return outputs[0]


def _concurrent(build: Function) -> str:
    """Name of a `Switch`, which makes a function run on several threads.

    TensorFlow (2.18 to 2.21) runs a function without control flow and without
    transfers between devices on one thread: it would wait in the first device's
    collective, and never start that of the second.
    """
    true = build.constant(True, tf.bool, HOST)
    build.op("Switch", [true, true], {"T": tf.bool}, HOST)
    return build.writer.last
