"""Bytes of variables per replica, for each way of sharding them.

`shard` is one of `SHARDS`, after ZeRO (Rajbhandari et al., arXiv 1910.02054):

* `"none"`: every replica holds every variable;
* `"optimizer"`: slots and gradients are divided by the number of replicas;
* `"weights"`: weights, too; they are gathered where a layer needs them;
* `"embeddings"`: tables of `Embedding` layers and their slots only.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

from kerasmgpu import replica_arithmetic
from kerasmgpu.errors import checked_choice, checked_integer
from kerasmgpu.replica_arithmetic import MIN_SHARD_BYTES

SHARDS = ("none", *replica_arithmetic.SHARDS)


@dataclasses.dataclass(frozen=True)
class VariableRecord:
    """A variable of a model.

    Attributes:
        path: String, Keras's path: `"dense/kernel"`.
        shape: Tuple of integers.
        bytes_per_element: Integer.
        kind: `"weight"`, `"slot"` (of an optimizer) or `"other"` (metrics,
            counters, seeds).
        is_embedding: Whether it is the table of an `Embedding` layer, or a
            slot of one.
    """

    path: str
    shape: tuple[int, ...]
    bytes_per_element: int
    kind: str
    is_embedding: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole variable."""
        return math.prod(self.shape) * self.bytes_per_element

    @property
    def layer(self) -> str:
        """The path of its layer."""
        return self.path.rpartition("/")[0]


@dataclasses.dataclass(frozen=True)
class StateBytes:
    """Bytes of variables that a replica holds.

    Attributes:
        weights: Integer, trainable or not.
        slots: Integer, variables of the optimizer.
        other: Integer, metrics, counters and seeds.
        gathered: Integer, whole weights that exist while a layer runs.
    """

    weights: int
    slots: int
    other: int
    gathered: int

    @property
    def total(self) -> int:
        """Bytes of variables, without gathered ones."""
        return self.weights + self.slots + self.other


def state_bytes(
    variables: Sequence[VariableRecord],
    shard: str,
    num_replicas: int,
    min_shard_bytes: int = MIN_SHARD_BYTES,
) -> StateBytes:
    """Returns the bytes of variables on the replica that holds most.

    Args:
        variables: Sequence of `VariableRecord`, in the order of the layers.
        shard: One of `SHARDS`.
        num_replicas: Integer of at least 1.
        min_shard_bytes: Integer, bytes from which on a variable is sharded.

    Returns:
        `StateBytes`.

    Raises:
        InputError: If an argument is invalid.

    Example:

    >>> kernel = VariableRecord("dense/kernel", (1000, 10), 4, "weight")
    >>> state_bytes([kernel], "weights", num_replicas=3).weights
    13360
    """
    checked_choice(shard, "shard", SHARDS)
    checked_integer(num_replicas, "num_replicas", 1)
    held = {"weight": 0, "slot": 0, "other": 0}
    whole_by_layer: dict[str, int] = {}
    for variable in variables:
        part = part_bytes(variable, shard, num_replicas, min_shard_bytes)
        held[variable.kind] += part
        if variable.kind == "weight" and part < variable.num_bytes:
            whole_by_layer.setdefault(variable.layer, 0)
            whole_by_layer[variable.layer] += variable.num_bytes
    # The next layer's weights are gathered while a layer runs. Rows of a
    # table are looked up where they are.
    gathered = 0
    if shard == "weights":
        whole = [0, *whole_by_layer.values()]
        gathered = max(map(sum, itertools.pairwise(whole)), default=0)
    return StateBytes(held["weight"], held["slot"], held["other"], gathered)


def part_bytes(
    variable: VariableRecord,
    shard: str,
    num_replicas: int,
    min_shard_bytes: int = MIN_SHARD_BYTES,
) -> int:
    """Returns the bytes of the largest part of a variable.

    Parts differ by at most one element of the axis that is divided.

    Args:
        variable: `VariableRecord`.
        shard: One of `SHARDS`.
        num_replicas: Integer.
        min_shard_bytes: Integer, bytes from which on a variable is sharded.
    """
    is_sharded = {
        "none": False,
        "optimizer": variable.kind == "slot",
        "weights": variable.kind in ("slot", "weight"),
        "embeddings": variable.is_embedding,
    }[shard]
    if not is_sharded or variable.num_bytes < min_shard_bytes:
        return variable.num_bytes
    shape = variable.shape
    axis = replica_arithmetic.shard_axis(
        shape, num_replicas, variable.is_embedding
    )
    if axis is None:
        return variable.num_bytes
    longest = -(-shape[axis] // num_replicas)
    return variable.num_bytes // shape[axis] * longest
