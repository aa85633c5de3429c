"""The mesh of replicas as plain data, without communication."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import cast

from kerasmgpu.division import AxesToShard, divided_axes
from kerasmgpu.partitioner.rules.kinds import (
    MeshAxes,
    Rows,
    Sharded,
    WithHalo,
    range_of,
)
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.replica_arithmetic import block_of, bounds_of


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
        axes: Sizes of the mesh axes. Each worker has a block of devices; see
            `block`. Blocks, and the devices in each, are in C order.
        planning_axes: For each kind of a placement the `MeshAxes` that are
            planned as one axis. Rows of a batch are divided along the first.
        sums_are_copies: Whether an all-reduce leaves a copy of the result on
            each device; otherwise the result is on one device.
        gathers_are_copies: The same for an all-gather.
        micro_batches: Number of shares per device; see `split`. If there are
            several, `devices`, `num`, `total` and `first` count shares.
        divides_rows: Whether a batch that is passed whole is divided by rows;
            otherwise every replica has all of them, and only variables are
            divided.

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
    axes: tuple[int, ...]
    planning_axes: tuple[MeshAxes, ...]
    sums_are_copies: bool = False
    gathers_are_copies: bool = False
    micro_batches: int = 1
    divides_rows: bool = True

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
        joins_axes: bool = False,
    ) -> "Mesh":
        """Creates the mesh of some devices; see `Mesh`.

        By default they share memory if none is a GPU, and there is one axis.

        Args:
            joins_axes: Whether all axes are planned as one: rows of a batch are
                divided along all of them.
        """
        if shares_memory is None:
            shares_memory = not any("GPU" in device for device in devices)
        has_cpus = any("CPU" in device for device in devices)
        axes = axes or (len(devices) * num_workers,)
        every = tuple(range(len(axes)))
        return cls(
            tuple(devices),
            host,
            worker,
            num_workers,
            shares_memory,
            has_cpus,
            axes,
            (every,) if joins_axes else tuple((axis,) for axis in every),
            divides_rows=divides_rows,
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
        """Number of planning axes: of the kinds of a placement."""
        return len(self.planning_axes)

    @property
    def micro_batch_axis(self) -> int:
        """The mesh axis along which a device's shares lie; see `split`."""
        return self.planning_axes[0][-1]

    def size(self, along: MeshAxes) -> int:
        """Returns the number of replicas along mesh axes."""
        return self.num_devices(along) * self.shares_along(along)

    def shares_along(self, along: MeshAxes) -> int:
        """Returns the number of shares of a device along mesh axes."""
        return self.micro_batches if self.micro_batch_axis in along else 1

    def num_devices(self, along: MeshAxes) -> int:
        """Returns the number of devices along mesh axes."""
        return math.prod(self.axes[axis] for axis in along)

    def num_parts(self, rows: Rows) -> int:
        """Returns into how many parts rows are divided.

        A device has one part of a variable, whatever its micro-batches.
        """
        if rows.are_of_variable:
            return self.num_devices(rows.over)
        return self.size(rows.over)

    @functools.cached_property
    def block(self) -> tuple[int, ...]:
        """Numbers of this process's devices along each mesh axis."""
        return block_of(self.axes, self.num // self.micro_batches)

    @functools.cached_property
    def blocks(self) -> tuple[int, ...]:
        """Numbers of workers' blocks along each mesh axis."""
        return tuple(size // own for size, own in zip(self.axes, self.block))

    @functools.cached_property
    def _worker_at(self) -> tuple[int, ...]:
        """Where this worker's block is among those of all, along each axis."""
        return _unravelled(self.worker, self.blocks)

    @functools.cached_property
    def _in_block(self) -> list[tuple[int, ...]]:
        """Where each device of this process is in its block."""
        number = self.num // self.micro_batches
        return [_unravelled(device, self.block) for device in range(number)]

    def first_along(self, along: MeshAxes) -> int:
        """Returns the position of this process's first replica along axes."""
        return _ravelled(self._worker_at, self.blocks, along) * self.num_along(
            along
        )

    def num_along(self, along: MeshAxes) -> int:
        """Returns the number of this process's replicas along mesh axes."""
        own = math.prod(self.block[axis] for axis in along)
        return own * self.shares_along(along)

    def position(self, place: int, along: MeshAxes) -> int:
        """Returns where a replica of this process is along mesh axes.

        Positions count from this process's first one; see `first_along`.
        """
        device, turn = divmod(place, self.micro_batches)
        number = _ravelled(self._in_block[device], self.block, along)
        each = self.shares_along(along)
        return number * each + (turn if each > 1 else 0)

    def index(self, place: int, along: MeshAxes) -> int:
        """Returns where a replica is among those of all workers along axes."""
        return self.first_along(along) + self.position(place, along)

    @property
    def has_lines_of_other_workers(self) -> bool:
        """Whether a worker has no replica in some lines along the first axis."""
        return self.blocks[0] < self.num_workers

    def at(self, worker: int) -> "Mesh":
        """Returns the mesh as another worker of the job has it."""
        return dataclasses.replace(self, worker=worker)

    def lines(self, along: MeshAxes) -> list[tuple[int, ...]]:
        """Returns the places of each of this process's lines along mesh axes.

        The replicas of a line differ only in their position along these axes.
        They communicate as those of a mesh with one axis; see `line`. Along
        other axes than that of micro-batches, those of each turn are a line of
        their own, one after the other.
        """
        others = [axis for axis in range(len(self.axes)) if axis not in along]
        found: dict[tuple[int, ...], list[int]] = {}
        for place in range(self.num):
            at = tuple(self.position(place, (axis,)) for axis in others)
            found.setdefault(at, []).append(place)
        return [tuple(places) for places in found.values()]

    def line(self, along: MeshAxes, places: Sequence[int]) -> "Mesh":
        """Returns the mesh of a line, whose other axes have the size 1."""
        return dataclasses.replace(
            self,
            devices=tuple(self.devices[place] for place in places),
            worker=_ravelled(self._worker_at, self.blocks, along),
            num_workers=math.prod(self.blocks[axis] for axis in along),
            axes=tuple(
                size if axis in along else 1
                for axis, size in enumerate(self.axes)
            ),
            planning_axes=(along,),
            micro_batches=self.shares_along(along),
        )

    def number_of(self, along: MeshAxes, places: Sequence[int]) -> int:
        """Returns the number of a line among all of the job along axes."""
        number = 0
        for axis in range(len(self.axes)):
            if axis not in along:
                at = self.index(places[0], (axis,))
                number = number * self.size((axis,)) + at
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
            axes=tuple(self.size((axis,)) for axis in range(len(self.axes))),
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
        device, turn = divmod(self.index(place, over), self.shares_along(over))
        bounds = bounds_of(size, self.num_devices(over))
        start, end = bounds[device : device + 2]
        return (start, end) if turn == 0 else (end, end)

    def ranges(self, kind: Sharded | WithHalo) -> list[tuple[int, int]]:
        """Returns which elements of an axis each replica holds.

        Args:
            kind: One whose shares are fixed.

        Returns:
            `(start, end)` for each replica along the axes of the division, also
            those of other workers.
        """
        size, over = cast(int, kind.rows.size), kind.rows.over
        bounds = bounds_of(size, self.num_devices(over))
        shares = (
            (start, end) if turn == 0 else (end, end)
            for start, end in zip(bounds, bounds[1:])
            for turn in range(self.shares_along(over))
        )
        return [range_of(kind, share) for share in shares]

    def range_at(self, kind: Sharded | WithHalo, place: int) -> tuple[int, int]:
        """Returns which elements of an axis a replica holds; see `ranges`."""
        return self.ranges(kind)[self.index(place, kind.rows.over)]

    def part(
        self, shape: Sequence[int], axes: AxesToShard, place: int
    ) -> tuple[slice, ...]:
        """Returns where a replica's part of a sharded variable is in the whole.

        The mesh must have no micro-batches.

        Args:
            shape: Shape of the whole variable.
        """
        box = [slice(0, size) for size in shape]
        for axis, along in divided_axes(axes).items():
            bounds = bounds_of(shape[axis], self.size(along))
            own = self.index(place, along)
            box[axis] = slice(bounds[own], bounds[own + 1])
        return tuple(box)

    def part_sizes(self, size: int, by_worker: bool = False) -> list[int]:
        """Returns how many rows of a variable each replica, or worker, has.

        The mesh must have no micro-batches.

        Args:
            size: Number of rows of the whole variable.
            by_worker: Whether to add up the rows of a worker's replicas.
        """
        bounds = bounds_of(size, self.total)[:: self.num if by_worker else 1]
        return [end - start for start, end in zip(bounds, bounds[1:])]


def _ravelled(
    position: Sequence[int], sizes: Sequence[int], along: MeshAxes
) -> int:
    """Returns the number of a position along some axes, in C order."""
    number = 0
    for axis in along:
        number = number * sizes[axis] + position[axis]
    return number


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
