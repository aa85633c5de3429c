"""Bytes of variables, by hand."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.memory.state_bytes import (
    Setting,
    VariableRecord,
    state_bytes,
)

KERNEL = VariableRecord("a/kernel", (1000, 10), "float32", "weight")
BIAS = VariableRecord("a/bias", (10,), "float32", "weight")
OTHER = VariableRecord("b/kernel", (10, 500), "float32", "weight")
TABLE = VariableRecord("e/embeddings", (5001, 4), "float32", "weight", True)
SLOT = VariableRecord(
    "adam/a_kernel_momentum", (1000, 10), "float32", "slot", weight=KERNEL
)
TABLE_SLOT = VariableRecord(
    "adam/e", (5001, 4), "float32", "slot", weight=TABLE
)
STEPS = VariableRecord("adam/iteration", (), "int64", "other")
ALL = [TABLE, KERNEL, BIAS, OTHER, SLOT, TABLE_SLOT, STEPS]


def test_every_replica_holds_everything():
    state = state_bytes(ALL, Setting(8, shard="none"))
    assert state.weights == 80_016 + 40_000 + 40 + 20_000
    assert state.slots == 40_000 + 80_016
    assert state.other == 8
    assert state.total == state.weights + state.slots + state.other


def test_slots_are_divided():
    state = state_bytes(ALL, Setting(3, shard="optimizer"))
    assert state.weights == 140_056
    # 334 of 1,000 and 1,667 of 5,001 rows: the largest part.
    assert state.slots == 334 * 40 + 1667 * 16


def test_weights_are_divided():
    state = state_bytes(ALL, Setting(4, shard="weights"))
    assert state.weights == 1251 * 16 + 250 * 40 + 40 + 125 * 40
    assert state.slots == 250 * 40 + 1251 * 16


def test_tables_alone_are_divided():
    state = state_bytes(ALL, Setting(2, shard="embeddings"))
    assert state.weights == 2501 * 16 + 40_000 + 40 + 20_000
    assert state.slots == 40_000 + 2501 * 16


def test_weights_are_divided_in_groups():
    """Kernels by the 2 replicas of a group, tables by all 4."""
    state = state_bytes(ALL, Setting(4, shard="weights", shard_over=2))
    assert state.weights == 1251 * 16 + 500 * 40 + 40 + 250 * 40
    assert state.slots == 500 * 40 + 1251 * 16


def test_small_variables_stay_whole():
    state = state_bytes(
        [KERNEL], Setting(2, shard="weights", min_shard_bytes=40_001)
    )
    assert state.weights == 40_000


def test_unknown_way():
    with pytest.raises(InputError, match="shard must be one of none, opt"):
        state_bytes(ALL, Setting(2, shard="rows"))
