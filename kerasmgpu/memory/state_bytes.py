"""Counts the bytes of variables per replica, for each way of sharding them.

`shard` is one of `SHARDS`, after ZeRO (Rajbhandari et al., arXiv 1910.02054):

* `"none"`: every replica holds every variable;
* `"optimizer"`: slots and gradients are divided by the number of replicas;
* `"weights"`: weights, too; they are gathered where a layer needs them;
* `"embeddings"`: tables of `Embedding` layers and their slots only.

Instead of one of them, a `Setting` takes the `Layouts` of a
`keras.distribution`: variables are divided along each axis of its mesh as their
layouts say.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Protocol

from kerasmgpu import replica_arithmetic
from kerasmgpu.errors import checked_choice, checked_integer
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES

SHARDS = ("none", *replica_arithmetic.SHARDS)


class Layouts(Protocol):
    """The interface of `strategies.layouts.Layouts`, as far as it is used."""

    axes: tuple[int, ...]
    divides_variables: bool
    divides_rows: bool

    def axes_of(
        self, spec: tuple[str | None, ...]
    ) -> tuple[int | None, ...] | None:
        """Returns a variable's axis for each axis of the mesh."""
        ...


@dataclasses.dataclass(frozen=True)
class VariableRecord:
    """Describes a variable of a model.

    Attributes:
        path: String, Keras's path: `"dense/kernel"`.
        kind: `"weight"`, `"slot"` (of an optimizer) or `"other"` (metrics,
            counters, seeds).
        is_embedding: Whether it is the table of an `Embedding` layer, or a
            slot of one.
        spec: Mesh axis of each axis of the variable in a `keras.distribution`,
            or `None` for those that are not divided. Empty for a whole one.
        initial: How its initializer makes its value; see `building`.
        offloads: Whether it is in host memory if it is divided: a slot, with
            `offload`.
    """

    path: str
    shape: tuple[int, ...]
    bytes_per_element: int
    kind: str
    is_embedding: bool = False
    spec: tuple[str | None, ...] = ()
    initial: str = "filled"
    offloads: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole variable."""
        return math.prod(self.shape) * self.bytes_per_element


@dataclasses.dataclass(frozen=True)
class StateBytes:
    """Bytes of variables that a replica holds.

    Attributes:
        weights: Integer, bytes of weights, trainable or not.
        slots: Integer, bytes of the optimizer's variables.
        other: Integer, bytes of metrics, counters and seeds.
        host: Integer, bytes of slots in host memory, which aren't in `total`.
    """

    weights: int
    slots: int
    other: int
    host: int = 0

    @property
    def total(self) -> int:
        """Bytes of all variables on the device."""
        return self.weights + self.slots + self.other


@dataclasses.dataclass(frozen=True)
class Setting:
    """The settings with which a step runs.

    Attributes:
        num_replicas: Integer, replicas of all workers.
        shard: One of `SHARDS`, or `Layouts`.
        micro_batches: Integer, parts in which a replica runs its rows.
        rows: Integer, rows of a global batch. Default: those of the trace.
        num_workers: Integer, processes of the job.
        device_type: `"GPU"` or `"CPU"`. Replicas of a process share the memory
            of CPUs.
        min_shard_bytes: Integer, bytes from which on a variable is sharded.
        groups: Integer, groups of replicas that each have all variables; see
            `shard_over` of `MirroredStrategy`.
        recompute: String or `None`, see `MirroredStrategy`.
        limit: Integer, bytes of a memory for `recompute="auto"`, or `None`.
    """

    num_replicas: int = 1
    shard: str | Layouts = "none"
    micro_batches: int = 1
    rows: int | None = None
    num_workers: int = 1
    device_type: str = "GPU"
    min_shard_bytes: int = MIN_SHARD_BYTES
    groups: int = 1
    recompute: str | None = None
    limit: int | None = None

    @property
    def num_local(self) -> int:
        """Number of replicas of each worker."""
        return self.num_replicas // self.num_workers

    @property
    def shares_memory(self) -> bool:
        """Whether a worker's replicas share one memory."""
        return self.device_type == "CPU"

    @property
    def copies(self) -> int:
        """Number of replicas that share a memory."""
        return self.num_local if self.shares_memory else 1

    @property
    def axes(self) -> tuple[int, ...]:
        """See `Mesh`."""
        return () if isinstance(self.shard, str) else self.shard.axes

    @property
    def divides_rows(self) -> bool:
        """See `Mesh`."""
        return isinstance(self.shard, str) or self.shard.divides_rows

    def axes_to_shard(self, variable: VariableRecord) -> tuple[int | None, ...]:
        """Returns a variable's axis that each mesh axis divides; empty if whole.

        Of `SHARDS`, whole are those that `shard` leaves whole, those of less
        than `min_shard_bytes`, those without an axis as long as the number of
        replicas, and all if there is one replica, but for those that `offloads`.
        """
        if not isinstance(self.shard, str):
            is_divided = self.shard.divides_variables
            return is_divided and self.shard.axes_of(variable.spec) or ()
        is_sharded = {
            "none": False,
            "optimizer": variable.kind == "slot",
            "weights": variable.kind in ("slot", "weight"),
            "embeddings": variable.is_embedding,
        }[self.shard]
        if (
            not is_sharded
            or self.num_replicas == 1
            and not variable.offloads
            or variable.num_bytes < self.min_shard_bytes
        ):
            return ()
        groups = self.groups
        if variable.is_embedding and self.shard != "optimizer":
            groups = (
                1  # Tables, and their slots with them, are of all replicas.
            )
        axis = replica_arithmetic.shard_axis(
            variable.shape, self.num_replicas // groups, variable.is_embedding
        )
        if axis is None:
            return ()
        return (axis,) if groups == 1 else (None, axis)

    def part_bytes(self, variable: VariableRecord) -> int:
        """Returns a variable's bytes on the replica that holds most of it.

        Parts differ by at most one element of the axis that is divided.
        """
        axes, sizes = self.axes_to_shard(variable), self.axes
        if len(axes) > 1 and not sizes:
            sizes = self.groups, self.num_replicas // self.groups
        shape = list(variable.shape)
        for axis, size in zip(axes, sizes or (self.num_replicas,)):
            if axis is not None:
                shape[axis] = -(-shape[axis] // size)
        return math.prod(shape) * variable.bytes_per_element

    def is_on_host(self, variable: VariableRecord) -> bool:
        """Whether a variable is in host memory."""
        return variable.offloads and bool(self.axes_to_shard(variable))


def state_bytes(
    variables: Sequence[VariableRecord], setting: Setting
) -> StateBytes:
    """Returns the bytes of variables on the replica that holds most.

    Args:
        variables: Sequence of `VariableRecord`, in the order of the layers.

    Raises:
        InputError: If the setting is invalid.

    Example:

    >>> kernel = VariableRecord("dense/kernel", (1000, 10), 4, "weight")
    >>> state_bytes([kernel], Setting(3, "weights")).weights
    13360
    """
    if isinstance(setting.shard, str):
        checked_choice(setting.shard, "shard", SHARDS)
    checked_integer(setting.num_replicas, "num_replicas", 1)
    held = {"weight": 0, "slot": 0, "other": 0, "host": 0}
    for one in variables:
        kind = "host" if setting.is_on_host(one) else one.kind
        held[kind] += setting.part_bytes(one)
    return StateBytes(held["weight"], held["slot"], held["other"], held["host"])
