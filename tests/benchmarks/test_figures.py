"""Medians, spreads and paired ratios, against numbers worked out by hand."""

import pytest

from benchmarks.figures import (
    FIGURES,
    Epoch,
    disagreements,
    of_epochs,
    over_processes,
    spread,
    summarise,
)


def run(contender, number, rate, replicas=1, workload="convnet", loss=0.5):
    """A run of round `number` with `rate` examples per second."""
    result = dict.fromkeys(FIGURES, 1.0)
    result.update(examples_per_second=rate, first_loss=loss)
    return {
        "workload": workload,
        "contender": contender,
        "replicas": replicas,
        "round": number,
        "result": result,
    }


def failed(contender, number, replicas=1):
    entry = run(contender, number, 1.0, replicas)
    del entry["result"]
    return {**entry, "failed": f"no luck in round {number}"}


def row_of(rows, contender, replicas=1):
    (row,) = [
        row
        for row in rows
        if (row["contender"], row["replicas"]) == (contender, replicas)
    ]
    return row


def test_medians_of_epochs():
    epochs = [Epoch(2.0, 5.0), Epoch(9.0, 4.0), Epoch(3.0, 6.0)]
    assert of_epochs(epochs, steps=10, global_batch_size=60) == {
        "examples_per_second": 60 / 0.3,
        "wall_ms_per_step": 300.0,
        "host_cpu_ms_per_step": 500.0,
        "least_cpu_ms_per_step": 400.0,
    }


def test_processes_that_train_together_take_as_long_as_the_slowest():
    first = [Epoch(2.0, 5.0), Epoch(3.0, 6.0)]
    second = [Epoch(2.5, 1.0), Epoch(2.0, 0.5)]
    together = [Epoch(2.5, 6.0), Epoch(3.0, 6.5)]
    assert over_processes([first, second]) == together


def test_spread_is_median_and_quartiles():
    values = spread([5.0, 1.0, 2.0, 3.0, 4.0])
    assert values == {"median": 3.0, "lower": 2.0, "upper": 4.0}


def test_ratios_are_taken_within_a_round():
    # The machine is half as fast in the second round, and twice in the third.
    rows = summarise(
        [
            run("stock", 1, 100.0, replicas=2),
            run("kerasmgpu", 1, 150.0, replicas=2),
            run("stock", 2, 50.0, replicas=2),
            run("kerasmgpu", 2, 75.0, replicas=2),
            run("stock", 3, 200.0, replicas=2),
            run("kerasmgpu", 3, 300.0, replicas=2),
        ]
    )
    ours = row_of(rows, "kerasmgpu", 2)
    assert ours["examples_per_second"]["median"] == 150.0
    assert ours["ratios"] == {
        "stock": {"median": 1.5, "lower": 1.5, "upper": 1.5}
    }
    assert row_of(rows, "stock", 2)["ratios"] == {}


def test_stock_is_compared_at_the_same_count_and_one_device_at_one():
    rows = summarise(
        [
            run("one_device", 1, 200.0),
            run("stock", 1, 100.0, replicas=1),
            run("stock", 1, 50.0, replicas=4),
            run("kerasmgpu", 1, 80.0, replicas=4),
        ]
    )
    ratios = row_of(rows, "kerasmgpu", 4)["ratios"]
    assert ratios["stock"]["median"] == 80 / 50
    assert ratios["one_device"]["median"] == 80 / 200


def test_variants_of_kerasmgpu_are_compared_with_it_at_the_same_count():
    rows = summarise(
        [
            run("kerasmgpu", 1, 100.0),
            run("kerasmgpu_logged", 1, 99.0),
            run("kerasmgpu", 1, 80.0, replicas=2),
            run("kerasmgpu_logged", 1, 76.0, replicas=2),
            run("pytorch", 1, 90.0, replicas=2),
        ]
    )
    for count, ratio in ((1, 0.99), (2, 0.95)):
        (found,) = row_of(rows, "kerasmgpu_logged", count)["ratios"].items()
        assert found[0] == "kerasmgpu"
        assert found[1]["median"] == pytest.approx(ratio)
    # The others have their columns already.
    assert row_of(rows, "pytorch", 2)["ratios"] == {}
    assert row_of(rows, "kerasmgpu")["ratios"] == {}


def test_a_failed_round_is_told_and_left_out():
    rows = summarise(
        [
            run("stock", 1, 100.0),
            failed("kerasmgpu", 1),
            failed("stock", 2),
            run("kerasmgpu", 2, 70.0),
            run("stock", 3, 100.0),
            run("kerasmgpu", 3, 90.0),
        ]
    )
    ours = row_of(rows, "kerasmgpu")
    assert (ours["runs"], ours["failed"]) == (2, "no luck in round 1")
    assert ours["examples_per_second"]["median"] == 80.0
    # Only the third round has both.
    assert ours["ratios"]["stock"]["median"] == 0.9


def test_a_contender_that_always_fails_has_a_row():
    (row,) = summarise([failed("stock", 1)])
    assert row["runs"] == 0 and "examples_per_second" not in row


@pytest.mark.parametrize(
    "loss, count", [(0.5004, 0), (0.51, 1), (float("nan"), 1)]
)
def test_another_first_loss_is_another_model(loss, count):
    runs = [run("stock", 1, 9.0), run("jax", 1, 9.0, replicas=2, loss=loss)]
    lines = disagreements(runs)
    assert len(lines) == count
    if lines:
        assert "jax (2)" in lines[0] and "not the same model" in lines[0]
