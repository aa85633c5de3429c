"""The mesh of replicas: plain data, and the arithmetic of shares of rows."""

import copy
from collections.abc import Sequence
from typing import TypeVar, cast

from kerasmgpu.partitioner.rules.kinds import Rows, Sharded, is_of_variable
from kerasmgpu.partitioner.step.graph import Tensor
from kerasmgpu.partitioner.step.places import HOST

_Mesh = TypeVar("_Mesh", bound="Mesh")


class Mesh:
    """The replicas of a job: their devices and shares, without communication.

    Args:
        devices: Full names of their devices.
        host: Full name of the CPU.

    Attributes:
        num: Number of replicas in this process.
        total: Number of all replicas.
        first: Global index of this process's first replica.
        shares_memory: Whether devices read each other's tensors without a copy,
            as logical CPU devices do.
        has_cpus: Whether some of the devices are CPUs.
        is_anywhere: Whether it is one replica without an assigned device.
        sums_are_copies: Whether an all-reduce leaves a copy of the result on
            each device; otherwise it is on one device.
        gathers_are_copies: The same for an all-gather.
        micro_batches: Shares of each device; see `split`. Numbers
            of replicas count shares then.
        of_devices: The mesh with one share per device, where there are
            several.
    """

    def __init__(self, devices: Sequence[str], host: str) -> None:
        self.devices = list(devices)
        self.host = host
        self.num = len(self.devices)
        self.total = self.num
        self.first = 0
        self.has_cpus = any("CPU" in device for device in devices)
        self.shares_memory = not any("GPU" in device for device in devices)
        self.is_anywhere = self.devices == [""]
        self.sums_are_copies = False
        self.gathers_are_copies = False
        self.micro_batches = 1
        self.of_devices: Mesh | None = None

    def alone(self) -> "Mesh":
        """One replica without an assigned device: it runs on its caller's."""
        mesh = Mesh([""], "")
        mesh.total = self.total
        mesh.has_cpus = self.has_cpus
        return mesh

    def always_has_rows(self, rows: Rows) -> bool:
        """Whether no share of these rows can be empty."""
        return (
            isinstance(rows.size, int)
            and rows.size >= self.total
            and rows.of is None
            and not (rows.are_of_variable and self.micro_batches > 1)
        )

    def part_of(self, rows: Rows, place: int) -> tuple[int, int]:
        """First row of a replica's part of a sharded variable, and its end.

        Of a device's micro-batches the first has its part, the others nothing.
        """
        size, number = cast(int, rows.size), self.micro_batches
        device, turn = divmod(self.first + place, number)
        start, end = bounds_of(size, self.total // number)[device : device + 2]
        return (start, end) if turn == 0 else (end, end)

    def has_parts(self, tensor: Tensor, sharded: Sharded) -> bool:
        """Whether rows are parts of a variable that are gathered as they are."""
        return is_of_variable(sharded) and sharded.outer == 1

    def may_differ(self, tensor: Tensor) -> bool:
        """Whether a replicated value may differ between workers by rounding."""
        return False


def split(mesh: _Mesh, micro_batches: int) -> _Mesh:
    """A mesh with several consecutive shares per device: micro-batches.

    Args:
        mesh: `Mesh` with a share per device.
        micro_batches: Shares of each device.

    Returns:
        `mesh` itself for one micro-batch.
    """
    if micro_batches == 1:
        return mesh
    shares = copy.copy(mesh)
    shares.devices = [
        name for name in mesh.devices for _ in range(micro_batches)
    ]
    shares.num, shares.total, shares.first = (
        number * micro_batches for number in (mesh.num, mesh.total, mesh.first)
    )
    shares.micro_batches = micro_batches
    shares.of_devices = mesh
    return shares


def first_on_device(mesh: Mesh, place: int) -> int:
    """The place of the first micro-batch on the device of a place."""
    if place == HOST:
        return HOST
    return place // mesh.micro_batches * mesh.micro_batches


def bounds_of(size: int, num_replicas: int) -> list[int]:
    """Bounds of the shares of `size` rows; the first shares get one row more.

    Returns:
        The first row of each share, and the end of the last one.
    """
    each, rest = divmod(size, num_replicas)
    return [n * each + min(n, rest) for n in range(num_replicas + 1)]
