"""Counts the bytes at the peak while a model is built, and loaded from a file.

Variables are created and loaded one after the other, each in parts (see
`partitioner/runtime/initial_values.py`): a replica holds its parts of those
before, and what making one part takes.
"""

import dataclasses
from collections.abc import Sequence

from kerasmgpu.memory.state_bytes import Setting, VariableRecord

PIECE_BYTES = 4 << 20
"""Bytes that are drawn at a time; a test compares it with what draws."""

FILLED, DRAWN, WHOLE = "filled", "drawn", "whole"
"""How an initializer makes a value: all elements equal; drawn, each part alone;
or only the whole."""


@dataclasses.dataclass(frozen=True)
class BuildingBytes:
    """Bytes at the peaks outside of steps.

    Attributes:
        built: Integer, bytes on a replica while the model, and its optimizer,
            are built. On CPUs those of all replicas of a worker.
        loaded: Integer, the same while a file of weights is loaded.
        host: Integer, bytes on the host of a worker while a file is loaded. On
            CPUs `loaded` has them, too.
    """

    built: int
    loaded: int
    host: int


def building_bytes(
    variables: Sequence[VariableRecord], setting: Setting
) -> BuildingBytes:
    """Returns the bytes at the peaks while a model is built and loaded.

    Args:
        variables: Sequence of `VariableRecord`, in the order of their creation.

    Example:

    >>> kernel = VariableRecord(
    ...     "kernel", (1000, 10), "float32", "weight", initial="drawn"
    ... )
    >>> building_bytes([kernel], Setting(4, shard="weights")).built
    30000
    """
    held = built = on_replica = host = 0
    for one in variables:
        axes, part = setting.axes_to_shard(one), setting.part_bytes(one)
        if setting.is_on_host(one) and not setting.shares_memory:
            continue
        divided = [axis for axis in axes if axis is not None]
        # Copies share the memory of one tensor until they are first updated.
        held += setting.copies * part if divided else part
        built = max(built, held + _making(one, part, divided))
        # The part that is read is beside the one that it replaces. Pages of the
        # file are mapped: of rows only their own.
        on_replica = max(on_replica, part)
        pages = part if divided in ([], [0]) else one.num_bytes
        host = max(host, part + pages)
    if setting.shares_memory:
        return BuildingBytes(built, held + host, 0)
    return BuildingBytes(built, held + on_replica, host)


def _making(one: VariableRecord, part: int, divided: list[int]) -> int:
    """Returns the bytes that making a part takes, beside the part."""
    if one.initial == FILLED:
        return 0
    if one.initial == WHOLE or not divided:
        return 2 * one.num_bytes
    if divided == [0]:
        return max(part, 2 * min(part, PIECE_BYTES))
    return max(part, 3 * min(one.num_bytes, PIECE_BYTES))
