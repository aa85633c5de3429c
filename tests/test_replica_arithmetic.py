"""Batch, learning-rate and efficiency arithmetic."""

import numpy as np
import pytest

from kerasmgpu import replica_arithmetic as arithmetic
from kerasmgpu.errors import InputError

NOT_COUNTS = (0, -1, 2.0, 1.5, "4", None, True, float("nan"))
NOT_RATES = (0, -0.1, float("nan"), float("inf"), "0.1", None, True)


def test_global_batch_is_the_sum_of_its_parts():
    assert arithmetic.global_batch_size(64, 4) == 256
    assert arithmetic.global_batch_size(np.int64(250), np.int32(3)) == 750


@pytest.mark.parametrize(
    "rows, replicas, parts",
    [
        (8, 4, (2, 2, 2, 2)),
        (5, 4, (2, 1, 1, 1)),
        (10, 4, (3, 3, 2, 2)),
        (2, 4, (1, 1, 0, 0)),
        (1, 1, (1,)),
        (250, 3, (84, 83, 83)),
    ],
)
def test_first_replicas_get_the_extra_row(rows, replicas, parts):
    assert arithmetic.per_replica_batch_sizes(rows, replicas) == parts


@pytest.mark.parametrize("rows", range(1, 40))
def test_split_agrees_with_numpy(rows):
    for replicas in range(1, 9):
        parts = np.array_split(np.arange(rows), replicas)
        assert arithmetic.per_replica_batch_sizes(rows, replicas) == tuple(
            len(part) for part in parts
        )


def test_last_batch():
    assert arithmetic.last_batch_sizes(1003, 100, 2) == (2, 1)
    assert arithmetic.last_batch_sizes(1000, 100, 2) == (50, 50)
    # Less data than one batch: the last batch is the only one.
    assert arithmetic.last_batch_sizes(3, 100, 4) == (1, 1, 1, 0)


def test_linear_rule_gives_the_rate_of_goyal_et_al():
    # 256 images at 0.1 become 8192 images at 3.2 (arXiv:1706.02677, table 1).
    assert arithmetic.scale_learning_rate(0.1, 8192 // 256) == pytest.approx(
        3.2
    )


def test_other_rules():
    rate = arithmetic.scale_learning_rate
    assert rate(0.1, 32, rule="sqrt") == pytest.approx(0.565685, abs=1e-6)
    assert rate(0.1, 32, rule="none") == 0.1
    for rule in arithmetic.LEARNING_RATE_RULES:
        assert rate(0.03, 1, rule=rule) == 0.03


def test_published_speed_ups_and_efficiencies():
    # The autoencoder on one to four GTX 970.
    seconds = {1: 857.74, 2: 562.51, 3: 384.39, 4: 263.56}
    published = {1: (1.00, 100), 2: (1.52, 76), 3: (2.23, 74), 4: (3.25, 81)}
    for replicas, (ratio, percent) in published.items():
        got = arithmetic.speed_up(1 / seconds[replicas], 1 / seconds[1])
        assert got == pytest.approx(ratio, abs=0.006)
        share = arithmetic.efficiency(got, replicas)
        assert share * 100 == pytest.approx(percent, abs=0.6)


def test_efficiency_against_a_run_on_several_replicas():
    assert arithmetic.efficiency(2.0, 4, reference_replicas=2) == 1.0
    assert arithmetic.efficiency(1.5, 4, reference_replicas=2) == 0.75


@pytest.mark.parametrize("bad", NOT_COUNTS)
@pytest.mark.parametrize(
    "name, call",
    [
        ("num_replicas", lambda n: arithmetic.global_batch_size(1, n)),
        (
            "batch_size_per_replica",
            lambda n: arithmetic.global_batch_size(n, 1),
        ),
        (
            "num_replicas",
            lambda n: arithmetic.per_replica_batch_sizes(4, n),
        ),
        (
            "global_batch_size",
            lambda n: arithmetic.per_replica_batch_sizes(n, 1),
        ),
        (
            "num_examples",
            lambda n: arithmetic.last_batch_sizes(n, 2, 1),
        ),
        (
            "global_batch_size",
            lambda n: arithmetic.last_batch_sizes(4, n, 1),
        ),
        (
            "num_replicas",
            lambda n: arithmetic.scale_learning_rate(0.1, n),
        ),
        ("num_replicas", lambda n: arithmetic.efficiency(1.0, n)),
        (
            "reference_replicas",
            lambda n: arithmetic.efficiency(1.0, 1, n),
        ),
    ],
)
def test_a_count_that_is_none_is_named(name, call, bad):
    with pytest.raises(InputError) as raised:
        call(bad)
    message = str(raised.value)
    assert message.startswith(f"{name} must be an integer of at least 1")
    assert f"Received: {name}={bad!r}" in message
    assert "\n" not in message


@pytest.mark.parametrize("bad", NOT_RATES)
@pytest.mark.parametrize(
    "name, call",
    [
        (
            "learning_rate",
            lambda x: arithmetic.scale_learning_rate(x, 2),
        ),
        ("rate", lambda x: arithmetic.speed_up(x, 1.0)),
        ("reference_rate", lambda x: arithmetic.speed_up(1.0, x)),
        ("speed_up", lambda x: arithmetic.efficiency(x, 1)),
    ],
)
def test_a_number_that_is_none_is_named(name, call, bad):
    with pytest.raises(InputError, match=f"^{name} must be .*Received: {name}"):
        call(bad)


@pytest.mark.parametrize("bad", ["cubic", "", None, 2, ["linear"]])
def test_an_unknown_rule_lists_the_rules(bad):
    with pytest.raises(InputError, match="one of linear, sqrt, none"):
        arithmetic.scale_learning_rate(0.1, 2, rule=bad)


@pytest.mark.parametrize(
    ("shape", "num_replicas", "is_table", "expected"),
    [
        ((10, 3), 4, False, 0),
        ((3, 3, 64, 130), 4, False, 2),  # 130 doesn't divide by 4.
        ((8, 8), 4, False, 0),
        ((5, 100), 4, True, 0),
        ((3, 100), 4, True, 1),  # Fewer rows than replicas.
        ((3, 3), 4, False, None),
        ((), 2, False, None),
    ],
)
def test_shard_axis(shape, num_replicas, is_table, expected):
    assert arithmetic.shard_axis(shape, num_replicas, is_table) == expected
