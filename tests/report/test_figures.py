"""What the report computes, against figures worked out by hand."""

import math

import pytest

from kerasmgpu.report import figures, run_files, units
from tests.report import samples


def read(folder, **files):
    (run,) = run_files.read([samples.write(folder, **files)])
    return run


def test_parts_of_the_time_add_up_over_epochs(tmp_path):
    line = {
        "epoch": 1,
        "computation": 50.0,
        "checkpoints": 10.0,
        "callback Slow": 30.0,
        "callback Quick": 0.25,
        "callback History": 0.25,
    }
    after = {"epoch": 2, "checkpoints": 4.0, "validation": None}
    run = read(
        tmp_path, run_json={}, times_jsonl=[line, {**line, "epoch": 2}, after]
    )
    assert figures.time_parts(run) == {
        "computation": 100.0,
        "checkpoints": 24.0,
        "callback Slow": 60.0,
        # Each is less than a hundredth.
        "other callbacks": 1.0,
    }


def test_the_longest_callbacks_have_names(tmp_path):
    times = {f"callback {n}": float(n) for n in range(10, 16)}
    run = read(tmp_path, run_json={}, times_jsonl=[{"epoch": 1, **times}])
    assert figures.time_parts(run) == {
        "callback 15": 15.0,
        "callback 14": 14.0,
        "callback 13": 13.0,
        "other callbacks": 33.0,
    }


def test_histograms_of_epochs_add_up(tmp_path):
    lines = [
        {"epoch": 1, "edges": [0.1, 0.2, 0.4], "counts": [3, 1]},
        {"epoch": 2, "edges": [0.2, 0.4, 0.8], "counts": [4, 0]},
        {"epoch": 3, "edges": "none", "counts": [1]},
        {"epoch": 4, "edges": [], "counts": []},
    ]
    run = read(tmp_path, run_json={}, steps_jsonl=lines)
    assert figures.step_histogram(run) == [(0.1, 0.2, 3), (0.2, 0.4, 5)]


def runs_of(tmp_path, *entries):
    """Runs of `(replicas, examples/s, entries of run.json)`."""
    folders = []
    for number, (replicas, rate, others) in enumerate(entries):
        folder = samples.complete(tmp_path / str(number), replicas, 1, rate)
        samples.write(folder, run_json=samples.facts(replicas, **others))
        folders.append(folder)
    return run_files.read(folders)


def test_scaling_at_one_batch_of_a_step(tmp_path):
    runs = runs_of(tmp_path, (4, 3000.0, {}), (1, 1000.0, {}), (2, 1800.0, {}))
    ((batch, alike),) = figures.scaling(runs)
    assert batch == "the batch of a step"
    assert [run.replicas for run in alike] == [1, 2, 4]
    found = [figures.efficiency(run, alike[0]) for run in alike]
    assert found == [
        pytest.approx(pair) for pair in [(1, 1), (1.8, 0.9), (3.0, 0.75)]
    ]


def test_scaling_at_one_batch_of_a_replica(tmp_path):
    rate = {"optimizer": {"name": "Adam", "learning_rate": 0.002}}
    runs = runs_of(
        tmp_path,
        (1, 1000.0, {}),
        (2, 1500.0, {"global_batch_size": 2048, "steps_per_epoch": 50, **rate}),
    )
    ((batch, _),) = figures.scaling(runs)
    assert batch == "the batch of a replica"


def test_scaling_compares_epochs_of_one_size(tmp_path):
    small = {"examples_per_epoch": 1024, "steps_per_epoch": 1}
    large = {"examples_per_epoch": 102_400, "steps_per_epoch": 100}
    runs = runs_of(
        tmp_path,
        (1, 500.0, small),
        (1, 1000.0, large),
        (2, 1800.0, {**large, "epochs": 3}),
    )
    ((_, alike),) = figures.scaling(runs)
    assert [(r.replicas, r.facts["examples_per_epoch"]) for r in alike] == [
        (1, 102_400),
        (2, 102_400),
    ]


def test_scaling_compares_with_the_faster_run_of_the_fewest(tmp_path):
    runs = runs_of(tmp_path, (1, 700.0, {}), (1, 1000.0, {}), (2, 1900.0, {}))
    ((_, alike),) = figures.scaling(runs)
    first = figures.fastest_of_fewest(alike)
    assert figures.efficiency(alike[-1], first)[1] == pytest.approx(0.95)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "another"},
        {"global_batch_size": 999},
        {"devices": ["CPU:0", "CPU:1"]},
        {"strategy": {"name": "MirroredStrategy", "batch_norm": "per_replica"}},
        {"parameters": {"trainable": 5}},
    ],
)
def test_runs_that_differ_otherwise_are_no_scaling(tmp_path, other):
    runs = runs_of(tmp_path, (1, 1000.0, {}), (2, 1500.0, other))
    assert figures.scaling(runs) == []


def test_one_replica_sends_nothing(tmp_path):
    one, two = runs_of(tmp_path, (1, 1.0, {}), (2, 1.0, {}))
    assert figures.sent(one) == {}
    assert figures.sent(two) == {
        "gradients, all-reduce": 4 << 20,
        "statistics, all-reduce": 3 << 10,
    }


def test_devices_over_time_are_a_mean_and_its_limits(tmp_path):
    lines = [
        {"time": 100.0 + 10 * n, "device": d, "power_watts": value + n}
        for n in range(3)
        for d, value in (("GPU:0", 100.0), ("GPU:1", 300.0))
    ]
    lines += [{"time": 100.0, "device": "host", "cpu_utilization": 2.0}]
    run = read(tmp_path, run_json={}, devices_jsonl=lines)
    rows = figures.over_time(run, "power_watts", of_process=False)
    # Three samples of 20 seconds are three points.
    assert [row[1:] for row in rows] == [
        (200.0, 100.0, 300.0),
        (201.0, 101.0, 301.0),
        (202.0, 102.0, 302.0),
    ]
    assert rows[0][0] == 0.0
    assert (
        figures.over_time(run, "cpu_utilization", of_process=True)[0][1] == 2.0
    )
    assert figures.over_time(run, "cpu_utilization", of_process=False) == []


def test_a_pause_is_a_gap_and_costs_no_detail(tmp_path):
    times = [*range(100, 150), *range(9000, 9050)]
    lines = [
        {"time": float(t), "device": "GPU:0", "power_watts": float(t % 50)}
        for t in times
    ]
    run = read(tmp_path, run_json={}, devices_jsonl=lines)
    rows = figures.over_time(run, "power_watts", of_process=False)
    gaps = [n for n, row in enumerate(rows) if math.isnan(row[1])]
    assert len(gaps) == 1
    assert rows[gaps[0] + 1][0] == pytest.approx((9000 - 100) / 60)
    # Nearly a point for each sample, in spite of the pause.
    assert len(rows) > 90


def test_many_samples_are_few_points(tmp_path):
    samples.write(
        tmp_path, run_json={}, devices_jsonl=samples.samples(1, 1, 5000)
    )
    (run,) = run_files.read([tmp_path])
    rows = figures.over_time(run, "memory_bytes", of_process=True)
    assert 300 < len(rows) <= 401
    assert {row[1] for row in rows} == {6 << 30}


def test_a_row_of_a_device_is_its_means_and_peaks():
    lines = [
        {
            "utilization": 0.5,
            "memory_bytes": 1 << 30,
            "memory_peak_bytes": 3 << 30,
            "power_watts": 300.0,
            "temperature_celsius": 60.0,
            "throttle_reasons": [],
        },
        {
            "utilization": 1.0,
            "memory_bytes": 2 << 30,
            "power_watts": 500.0,
            "temperature_celsius": 70.0,
            "throttle_reasons": ["sw power cap"],
        },
    ]
    row = ["75 %", "3 GiB", "400 W", "70 °C", "50 %"]
    assert figures.device_row(lines) == row
    assert figures.device_row([{}]) == ["–"] * 5
    assert figures.device_row([{"cpu_utilization": 3.0}])[0] == "3 cores"


@pytest.mark.parametrize(
    "form, value, text",
    [
        (units.plain, 12345.6, "12,346"),
        (units.plain, 0.00012344, "0.0001234"),
        (units.plain, 0, "0"),
        (units.plain, math.nan, "–"),
        (units.plain, 1e-9, "1e-09"),
        (units.short, 12_500, "12.5k"),
        (units.short, 0.25, "0.25"),
        (units.percent, 0.123, "12 %"),
        (units.percent, 0.0123, "1.2 %"),
        (units.percent, 1.0, "100 %"),
        (units.percent, 1e-6, "< 0.1 %"),
        (units.percent, 0, "0 %"),
        (units.seconds, 0.00125, "1.25 ms"),
        (units.seconds, 4e-7, "0.4 µs"),
        (units.seconds, 200, "3 min 20 s"),
        (units.seconds, 7260, "2 h 01 min"),
        (units.data, 1536, "1.5 KiB"),
        (units.data, 80 << 30, "80 GiB"),
        (units.with_unit("W"), 51.25, "51.25 W"),
        (units.with_unit("W"), math.inf, "–"),
    ],
)
def test_numbers_have_units(form, value, text):
    assert form(value) == text
