"""Counts the bytes of variables per replica, for each way of sharding them.

`shard` is one of `SHARDS`, after ZeRO (Rajbhandari et al., arXiv 1910.02054):

* `"none"`: every replica holds every variable;
* `"optimizer"`: slots and gradients are divided by the number of replicas;
* `"weights"`: weights, too; they are gathered where a layer needs them;
* `"embeddings"`: tables of `Embedding` layers and their slots only.

Instead of one of them, functions take the `Layouts` of a `keras.distribution`:
variables are divided along each axis of its mesh as their layouts say.
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
        shape: Tuple of integers.
        bytes_per_element: Integer.
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


def state_bytes(
    variables: Sequence[VariableRecord],
    shard: str | Layouts,
    num_replicas: int,
    min_shard_bytes: int = MIN_SHARD_BYTES,
    groups: int = 1,
) -> StateBytes:
    """Returns the bytes of variables on the replica that holds most.

    Args:
        variables: Sequence of `VariableRecord`, in the order of the layers.
        shard: One of `SHARDS`, or `Layouts`.
        num_replicas: Integer of at least 1.
        min_shard_bytes: Integer, bytes from which on a variable is sharded.
        groups: Integer, groups of replicas that each have all variables; see
            `shard_over` of `MirroredStrategy`.

    Returns:
        `StateBytes`.

    Raises:
        InputError: If an argument is invalid.

    Example:

    >>> kernel = VariableRecord("dense/kernel", (1000, 10), 4, "weight")
    >>> state_bytes([kernel], "weights", num_replicas=3).weights
    13360
    """
    if isinstance(shard, str):
        checked_choice(shard, "shard", SHARDS)
    checked_integer(num_replicas, "num_replicas", 1)
    held = {"weight": 0, "slot": 0, "other": 0, "host": 0}
    for variable in variables:
        how = variable, shard, num_replicas, min_shard_bytes, groups
        held["host" if is_on_host(*how) else variable.kind] += part_bytes(*how)
    return StateBytes(held["weight"], held["slot"], held["other"], held["host"])


def is_on_host(
    variable: VariableRecord,
    shard: str | Layouts,
    num_replicas: int,
    min_shard_bytes: int = MIN_SHARD_BYTES,
    groups: int = 1,
) -> bool:
    """Whether a variable is in host memory; arguments as for `part_bytes`."""
    how = variable, shard, num_replicas, min_shard_bytes, groups
    return variable.offloads and bool(axes_to_shard(*how))


def part_bytes(
    variable: VariableRecord,
    shard: str | Layouts,
    num_replicas: int,
    min_shard_bytes: int = MIN_SHARD_BYTES,
    groups: int = 1,
) -> int:
    """Returns a variable's bytes on the replica that holds most of it.

    Parts differ by at most one element of the axis that is divided.

    Args:
        variable: `VariableRecord`.
        shard: One of `SHARDS`, or `Layouts`.
        num_replicas: Integer.
        min_shard_bytes: Integer, bytes from which on a variable is sharded.
        groups: See `state_bytes`.
    """
    axes = axes_to_shard(variable, shard, num_replicas, min_shard_bytes, groups)
    sizes = () if isinstance(shard, str) else shard.axes
    if len(axes) > 1 and not sizes:
        sizes = groups, num_replicas // groups
    shape = list(variable.shape)
    for axis, size in zip(axes, sizes or (num_replicas,)):
        if axis is not None:
            shape[axis] = -(-shape[axis] // size)
    return math.prod(shape) * variable.bytes_per_element


def axes_to_shard(
    variable: VariableRecord,
    shard: str | Layouts,
    num_replicas: int,
    min_shard_bytes: int = MIN_SHARD_BYTES,
    groups: int = 1,
) -> tuple[int | None, ...]:
    """Returns a variable's axis that each mesh axis divides; empty if whole.

    Of `SHARDS`, whole are those that `shard` leaves whole, those of less than
    `min_shard_bytes`, those without an axis as long as the number of replicas,
    and all if there is one replica, but for those that `offloads`.

    Args:
        variable: `VariableRecord`.
        shard: One of `SHARDS`, or `Layouts`.
        num_replicas: Integer.
        min_shard_bytes: Integer, bytes from which on a variable is sharded.
        groups: See `state_bytes`.
    """
    if not isinstance(shard, str):
        return shard.divides_variables and shard.axes_of(variable.spec) or ()
    is_sharded = {
        "none": False,
        "optimizer": variable.kind == "slot",
        "weights": variable.kind in ("slot", "weight"),
        "embeddings": variable.is_embedding,
    }[shard]
    if (
        not is_sharded
        or num_replicas == 1
        and not variable.offloads
        or variable.num_bytes < min_shard_bytes
    ):
        return ()
    if variable.is_embedding and shard != "optimizer":
        groups = 1  # Tables, and their slots with them, are of all replicas.
    axis = replica_arithmetic.shard_axis(
        variable.shape, num_replicas // groups, variable.is_embedding
    )
    if axis is None:
        return ()
    return (axis,) if groups == 1 else (None, axis)
