"""Counts the bytes of variables per replica, for each way of sharding them.

`shard` is, after ZeRO (Rajbhandari et al., arXiv 1910.02054):

* `"none"`: every replica holds every variable;
* `"optimizer"`: slots and gradients are divided by the number of replicas;
* `"weights"`: weights, too; they are gathered where a layer needs them;
* `"embeddings"`: tables of `Embedding` layers and their slots only.

With the `layouts` of a `keras.distribution`, variables are divided along each
axis of its mesh as these say.
"""

import dataclasses
import functools
from collections.abc import Sequence

from kerasmgpu.division import (
    Division,
    NewVariable,
    element_bytes,
    elements_of_part,
)
from kerasmgpu.errors import checked_integer
from kerasmgpu.replica_arithmetic import groups_of
from kerasmgpu.strategy_settings import Settings


@dataclasses.dataclass(frozen=True)
class VariableRecord(NewVariable):
    """Describes a variable of a model; see `NewVariable`.

    Attributes:
        initial: How its initializer makes its value; see `building`.
        held_as: What `StateBytes` counts it as: `"weight"`, `"slot"` or
            `"other"` (metrics, counters, seeds). Default: its kind.
        weight: `VariableRecord` of the weight whose slot it is, or `None`.
    """

    initial: str = "filled"
    held_as: str = ""
    weight: "VariableRecord | None" = None


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
class Setting(Settings):
    """The settings of a step, and the devices that it runs on.

    Attributes:
        num_replicas: Integer, replicas of all workers.
        layouts: `strategies.layouts.Layouts` of a `keras.distribution`, which
            divide variables in the place of `shard`; or `None`.
        rows: Integer, rows of a global batch. Default: those of the trace.
        num_workers: Integer, processes of the job.
        device_type: `"GPU"` or `"CPU"`. Replicas of a process share the memory
            of CPUs.
        limit: Integer, bytes of a memory for `recompute="auto"`, or `None`.
    """

    num_replicas: int = 1
    layouts: Division | None = None
    rows: int | None = None
    num_workers: int = 1
    device_type: str = "GPU"
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
    def groups(self) -> int:
        """Number of groups of replicas that each have all variables."""
        if self.shard in (None, "embeddings"):
            return 1
        return groups_of(self.num_replicas, self.shard_over)

    @property
    def _mesh_axes(self) -> tuple[int, ...]:
        if self.groups == 1:
            return (self.num_replicas,)
        return self.groups, self.num_replicas // self.groups

    @functools.cached_property
    def division(self) -> Division:
        """What decides how variables are divided."""
        if self.layouts is not None:
            return self.layouts
        made = Division(
            self.shard, self.min_shard_bytes, lambda: self._mesh_axes
        )
        made.offloads = self.offload is not None
        return made

    def axes_to_shard(self, variable: VariableRecord) -> tuple[int | None, ...]:
        """Returns a variable's axis that each mesh axis divides; empty if whole."""
        of_weight = variable.weight and self.axes_to_shard(variable.weight)
        return self.division.axes_to_shard(variable, of_weight or None) or ()

    def part_bytes(self, variable: VariableRecord) -> int:
        """Returns a variable's bytes on the replica that holds most of it.

        Parts differ by at most one element of the axis that is divided.
        """
        axes = self.axes_to_shard(variable)
        elements = elements_of_part(variable.shape, axes, self.division.axes)
        return elements * element_bytes(variable.dtype)

    def is_on_host(self, variable: VariableRecord) -> bool:
        """Whether a variable is in host memory."""
        is_slot = self.offload is not None and variable.kind == "slot"
        return is_slot and bool(self.axes_to_shard(variable))


def state_bytes(
    variables: Sequence[VariableRecord], setting: Setting
) -> StateBytes:
    """Returns the bytes of variables on the replica that holds most.

    Args:
        variables: Sequence of `VariableRecord`, in the order of the layers.

    Raises:
        InputError: If the setting is invalid.

    Example:

    >>> kernel = VariableRecord("dense/kernel", (1000, 10), "float32", "weight")
    >>> state_bytes([kernel], Setting(3, shard="weights")).weights
    13360
    """
    checked_integer(setting.num_replicas, "num_replicas", 1)
    held = {"weight": 0, "slot": 0, "other": 0, "host": 0}
    for one in variables:
        kind = one.held_as or one.kind
        if setting.is_on_host(one):
            kind = "host"
        held[kind] += setting.part_bytes(one)
    return StateBytes(held["weight"], held["slot"], held["other"], held["host"])
