"""The mesh of replicas as plain data, without communication."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import cast

from kerasmgpu.partitioner.rules.kinds import Rows
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.replica_arithmetic import bounds_of

WITHIN_GROUPS = 1
"""Number of the axis of a mesh with `groups` on which a group's replicas lie."""

BETWEEN_GROUPS = 2
"""Number of the axis on which replicas of all groups with equal parts lie."""


@dataclasses.dataclass(frozen=True)
class Mesh:
    """The replicas of a job: their devices and shares, without communication.

    `Mesh.on` creates one.

    Args:
        devices: Full names of this process's devices, one per replica.
        host: Full name of this process's CPU.
        worker: Index of this process in the job.
        num_workers: Number of processes in the job; all have the same number of
            replicas.
        shares_memory: Whether devices read each other's tensors without a copy,
            as logical CPU devices do.
        has_cpus: Whether some of the devices are CPUs.
        sums_are_copies: Whether an all-reduce leaves a copy of the result on
            each device; otherwise the result is on one device.
        gathers_are_copies: The same for an all-gather.
        micro_batches: Number of shares per device; see `split`. If there are
            several, `devices`, `num`, `total` and `first` count shares.
        divides_rows: Whether a batch that is passed whole is divided by rows;
            otherwise every replica has all of them, and only variables are
            divided.
        axes: Sizes of the mesh axes, over which the devices are numbered in C
            order. Rows are divided along the first one, axis 0. Empty if there
            is one axis, of all replicas. Each worker has a block of it; see
            `block`.
        groups: Number of groups of consecutive replicas that each hold all parts
            of a variable whose `Rows` are divided along `WITHIN_GROUPS`. Rows of
            a batch are divided over all replicas. Only of a mesh of one axis.
        rows_along: The axis of `axes` along which the rows of a batch are
            divided among micro-batches.

    Attributes:
        num: Number of replicas in this process.
        total: Number of all replicas.
        first: Global index of this process's first replica.
    """

    devices: tuple[str, ...]
    host: str
    worker: int
    num_workers: int
    shares_memory: bool
    has_cpus: bool
    sums_are_copies: bool = False
    gathers_are_copies: bool = False
    micro_batches: int = 1
    divides_rows: bool = True
    axes: tuple[int, ...] = ()
    groups: int = 1
    rows_along: int = 0

    @classmethod
    def on(
        cls,
        devices: Sequence[str],
        host: str,
        worker: int = 0,
        num_workers: int = 1,
        shares_memory: bool | None = None,
        divides_rows: bool = True,
        axes: tuple[int, ...] = (),
        groups: int = 1,
    ) -> "Mesh":
        """Creates the mesh of some devices; see `Mesh`.

        By default they share memory if none is a GPU.
        """
        if shares_memory is None:
            shares_memory = not any("GPU" in device for device in devices)
        has_cpus = any("CPU" in device for device in devices)
        return cls(
            tuple(devices),
            host,
            worker,
            num_workers,
            shares_memory,
            has_cpus,
            divides_rows=divides_rows,
            axes=axes if len(axes) > 1 else (),
            groups=groups,
        )

    @functools.cached_property
    def num(self) -> int:
        return len(self.devices)

    @functools.cached_property
    def total(self) -> int:
        return self.num * self.num_workers

    @functools.cached_property
    def first(self) -> int:
        return self.num * self.worker

    @property
    def num_axes(self) -> int:
        """Number of mesh axes."""
        return len(self.axes) or 1

    @functools.cached_property
    def grouped(self) -> "Mesh":
        """The mesh of two axes, groups and a group's replicas."""
        each = self.total // self.micro_batches // self.groups
        axes = self.groups, each
        return dataclasses.replace(self, axes=axes, groups=1, rows_along=1)

    def _is_of_groups(self, axis: int) -> bool:
        """Whether an axis is one of `grouped`, whose number is `2 - axis`."""
        return self.groups > 1 and axis in (WITHIN_GROUPS, BETWEEN_GROUPS)

    def size(self, axis: int) -> int:
        """Returns the number of replicas along a mesh axis."""
        if self._is_of_groups(axis):
            return self.grouped.size(2 - axis)
        if not self.axes:
            return self.total
        return self.axes[axis] * self.shares_along(axis)

    def shares_along(self, axis: int) -> int:
        """Returns the number of shares of a device along a mesh axis."""
        if self._is_of_groups(axis):
            return self.grouped.shares_along(2 - axis)
        is_of_rows = not self.axes or axis == self.rows_along
        return self.micro_batches if is_of_rows else 1

    def num_devices(self, axis: int) -> int:
        """Returns the number of devices along a mesh axis."""
        return self.of_devices.size(axis)

    @functools.cached_property
    def block(self) -> tuple[int, ...]:
        """Numbers of this process's devices along each mesh axis."""
        number = self.num // self.micro_batches
        found = block_of(self.axes, number) if self.axes else (number,)
        return cast(tuple[int, ...], found)

    @functools.cached_property
    def _worker_at(self) -> tuple[int, ...]:
        """Where this worker's block is among those of all, along each axis."""
        return _unravelled(self.worker, self.blocks)

    @functools.cached_property
    def blocks(self) -> tuple[int, ...]:
        """Numbers of workers' blocks along each mesh axis."""
        sizes = map(self.num_devices, range(self.num_axes))
        return tuple(size // own for size, own in zip(sizes, self.block))

    def first_along(self, axis: int) -> int:
        """Returns the position of this process's first replica along an axis."""
        if self._is_of_groups(axis):
            return self.grouped.first_along(2 - axis)
        own = axis if self.axes else 0
        return self._worker_at[own] * self.num_along(axis)

    def num_along(self, axis: int) -> int:
        """Returns the number of this process's replicas along an axis.

        A line has one axis, whatever axis of the mesh it is along.
        """
        if self._is_of_groups(axis):
            return self.grouped.num_along(2 - axis)
        own = axis if self.axes else 0
        return self.block[own] * self.shares_along(own)

    def position(self, place: int, axis: int) -> int:
        """Returns where a replica of this process is along a mesh axis.

        Positions count from this process's first one; see `first_along`.
        """
        if self._is_of_groups(axis):
            return self.grouped.position(place, 2 - axis)
        if not self.axes:
            return place
        device, turn = divmod(place, self.micro_batches)
        number, each = _unravelled(device, self.block)[axis], 1
        if axis == self.rows_along:
            each = self.micro_batches
        return number * each + (turn if each > 1 else 0)

    @property
    def has_lines_of_other_workers(self) -> bool:
        """Whether a worker has no replica in some lines along the first axis.

        With `groups`, in some of those between groups.
        """
        mesh = self.grouped if self.groups > 1 else self
        return mesh.blocks[0] < self.num_workers

    def at(self, worker: int) -> "Mesh":
        """Returns the mesh as another worker of the job has it."""
        return dataclasses.replace(self, worker=worker)

    def lines(self, axis: int) -> Sequence[Sequence[int]]:
        """Returns the places of each of this process's lines along a mesh axis.

        The replicas of a line differ only in their position along that axis.
        They communicate as those of a mesh with one axis; see `line`. Along
        other axes than that of the rows, micro-batches of each turn are a line
        of their own, one after the other.
        """
        if self._is_of_groups(axis):
            return self.grouped.lines(2 - axis)
        if not self.axes:
            return [range(self.num)]
        step = math.prod(self.block[axis + 1 :])
        length, each = step * self.block[axis], self.micro_batches
        devices = [
            range(first + start, first + start + length, step)
            for first in range(0, self.num // each, length)
            for start in range(step)
        ]
        if axis == self.rows_along:
            return [
                tuple(n * each + turn for n in line for turn in range(each))
                for line in devices
            ]
        return [
            tuple(n * each + turn for n in line)
            for line in devices
            for turn in range(each)
        ]

    def line(self, axis: int, places: Sequence[int]) -> "Mesh":
        """Returns the mesh, with one axis, of a line; see `lines`."""
        if self._is_of_groups(axis):
            return self.grouped.line(2 - axis, places)
        return dataclasses.replace(
            self,
            devices=tuple(self.devices[place] for place in places),
            worker=self._worker_at[axis],
            num_workers=self.blocks[axis],
            axes=(),
            micro_batches=self.shares_along(axis),
        )

    def number_of(self, axis: int, places: Sequence[int]) -> int:
        """Returns the number of a line among all of the job along an axis."""
        if self._is_of_groups(axis):
            return self.grouped.number_of(2 - axis, places)
        number = 0
        for other in range(self.num_axes):
            if other != axis:
                at = self.first_along(other) + self.position(places[0], other)
                number = number * self.size(other) + at
        return number

    @property
    def is_anywhere(self) -> bool:
        """Whether it is one replica without an assigned device; see `alone`."""
        return self.devices == ("",)

    @property
    def reduces_on_host_first(self) -> bool:
        """Whether each worker first reduces over its replicas in shared memory.

        The workers' results are then reduced over the hosts.
        """
        return self.shares_memory and self.num_workers > 1

    def alone(self) -> "Mesh":
        """Returns the mesh of a function that a replica runs by itself.

        Bodies of its loops and branches are such functions. They run on their
        caller's device; `total` stays that of this mesh.
        """
        return dataclasses.replace(
            self,
            devices=("",),
            host="",
            worker=0,
            num_workers=self.total,
            micro_batches=1,
            axes=tuple(map(self.size, range(len(self.axes)))),
        )

    def split(self, micro_batches: int) -> "Mesh":
        """Returns the mesh with several micro-batches per device.

        They are consecutive shares of the rows.
        """
        shares = (name for name in self.devices for _ in range(micro_batches))
        return dataclasses.replace(
            self, devices=tuple(shares), micro_batches=micro_batches
        )

    @functools.cached_property
    def of_devices(self) -> "Mesh":
        """The mesh with one share per device; see `split`."""
        devices = self.devices[:: self.micro_batches]
        return dataclasses.replace(self, devices=devices, micro_batches=1)

    def always_has_rows(self, rows: Rows) -> bool:
        """Whether no share of these rows can be empty."""
        return (
            isinstance(rows.size, int)
            and rows.size >= self.size(rows.over)
            and rows.of is None
            and not (rows.are_of_variable and self.shares_along(rows.over) > 1)
        )

    def part_of(self, rows: Rows, place: int) -> tuple[int, int]:
        """Returns `(start, end)`: a replica's rows of a sharded variable.

        Of a device's micro-batches, only the first has rows; the others' ranges
        are empty.
        """
        size, over = cast(int, rows.size), rows.over
        number = self.shares_along(over)
        position = self.first_along(over) + self.position(place, over)
        device, turn = divmod(position, number)
        bounds = bounds_of(size, self.num_devices(over))
        start, end = bounds[device : device + 2]
        return (start, end) if turn == 0 else (end, end)

    def part_sizes(self, size: int, by_worker: bool = False) -> list[int]:
        """Returns how many rows of a variable each replica, or worker, has.

        The mesh must have no micro-batches.

        Args:
            size: Number of rows of the whole variable.
            by_worker: Whether to add up the rows of a worker's replicas.
        """
        bounds = bounds_of(size, self.total)[:: self.num if by_worker else 1]
        return [end - start for start, end in zip(bounds, bounds[1:])]


def block_of(axes: Sequence[int], num: int) -> tuple[int, ...] | None:
    """Returns how many replicas of a worker lie along each axis of a mesh.

    Workers' replicas are numbered one worker after the other, so the last axes
    lie inside a worker. Returns `None` if they are no blocks of the mesh.
    """
    block: list[int] = []
    for size in reversed(axes):
        own = min(size, num)
        if size % own or num % own:
            return None
        block.insert(0, own)
        num //= own
    return tuple(block)


def _unravelled(number: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Returns the position of an element of an array, in C order."""
    position: list[int] = []
    for size in reversed(sizes):
        number, own = divmod(number, size)
        position.insert(0, own)
    return tuple(position)


def first_on_device(mesh: Mesh, place: int) -> int:
    """Returns the place of the first micro-batch on the device of `place`.

    The place `HOST` is returned unchanged.
    """
    if place == HOST:
        return HOST
    return place // mesh.micro_batches * mesh.micro_batches
