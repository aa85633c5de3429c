"""Peaks while a model is built and loaded, by hand and measured."""

import os
import re
import subprocess
import sys

import keras
import pytest

from kerasmgpu.memory import building
from kerasmgpu.memory.building import building_bytes
from kerasmgpu.memory.state_bytes import Setting, VariableRecord
from kerasmgpu.memory.traced_step import _records
from kerasmgpu.partitioner.runtime import initial_values
from tests.strategies.sharded import mirrored

MIB = 1 << 20


def record(shape, initial, kind="weight"):
    return VariableRecord("v", shape, "float32", kind, initial=initial)


def test_pieces_are_those_that_are_drawn():
    assert building.PIECE_BYTES == initial_values._MOST_BYTES


@pytest.mark.parametrize(
    "shape, initial, held, making",
    [
        # 32 MiB in rows of 4 KiB, 8 MiB on each of four replicas: these are
        # pieces when they become one tensor.
        ((8192, 1024), "drawn", 8, 8),
        # 8 MiB: what is drawn, scaled, and the part itself.
        ((2048, 1024), "drawn", 2, 4),
        # Columns, 1 MiB of 4: all are drawn, scaled and moved.
        ((1023, 1024), "drawn", 1023 / 1024, 3 * 1023 / 1024 * 4),
        ((8192, 1024), "filled", 8, 0),
        ((8192, 1024), "whole", 8, 64),
    ],
)
def test_a_part_is_made_beside_those_before(shape, initial, held, making):
    first = record((1024, 1024), "filled")  # 1 MiB of 4 on each.
    one = record(shape, initial)
    found = building_bytes([first, one], Setting(4, shard="weights"))
    assert found.built == (1 + held + making) * MIB
    found = building_bytes(
        [one, record((8192, 4096), "filled")], Setting(4, shard="weights")
    )
    assert found.built == max(held + making, held + 32) * MIB


def test_a_variable_that_stays_whole_is_drawn_and_scaled():
    one = record((1024, 1024), "drawn")
    assert building_bytes([one], Setting(4, shard="none")).built == 3 * 4 * MIB
    # Copies of one process share a tensor; parts are parts.
    assert (
        building_bytes([one], Setting(4, shard="none", device_type="CPU")).built
        == 3 * 4 * MIB
    )
    parts = building_bytes(
        [one], Setting(4, shard="weights", device_type="CPU")
    )
    assert parts.built == (4 + 2) * MIB


def test_a_part_is_loaded_beside_the_old_one_and_its_pages_on_the_host():
    rows, columns = record((2048, 1024), "drawn"), record((1023, 1024), "drawn")
    found = building_bytes([rows, columns], Setting(4, shard="weights"))
    held = 2 * MIB + 1023 * 1024
    assert found.loaded == held + 2 * MIB
    assert found.host == 1023 * 1024 * 5  # A part, and the pages of all rows.
    four = Setting(4, shard="weights", num_workers=4, device_type="CPU")
    found = building_bytes([rows, columns], four)
    assert (found.loaded, found.host) == (held + 1023 * 1024 * 5, 0)


def test_initializers_are_those_of_the_model():
    with mirrored(2, "weights").scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(4),
                keras.layers.Dense(4, kernel_initializer="orthogonal"),
            ]
        )
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    found = [one.initial for _, one in _records(model)]
    assert found[:4] == ["drawn", "filled", "whole", "filled"]
    assert set(found[6:]) == {"filled"}


@pytest.mark.slow
def test_predictions_are_near_what_a_process_needs(tmp_path):
    shards = ["weights", "none"]
    command = "-m", "tests.memory.building_program", tmp_path / "a.weights.h5"
    settings = {
        "TF_ENABLE_ONEDNN_OPTS": "0",  # oneDNN's allocator keeps freed memory.
        "MALLOC_MMAP_THRESHOLD_": "262144",
    }
    done = subprocess.run(
        [sys.executable, *command, *shards],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=200,
    )
    found = re.findall(r"(built|loaded) (\S+) (\S+)", done.stdout)
    assert len(found) == 2 * len(shards), done.stderr[-2000:]
    for what, predicted, measured in found:
        assert float(predicted) == pytest.approx(float(measured), rel=0.1), what
