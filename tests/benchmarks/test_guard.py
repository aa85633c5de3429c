"""What became slower is found, and measured again before it counts."""

import pytest

from benchmarks import guard, machine, runs
from benchmarks.guard import YARDSTICK
from kerasmgpu.errors import InputError

NAME = "lstm kerasmgpu 2"


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """Function that guards with given multiples of one device's step."""

    def guarded(multiples, first=10.0, **arguments):
        left, asked = list(multiples), []

        def run(rounds, **settings):
            asked.append(rounds)
            made = []
            for number in range(rounds):
                for name in (YARDSTICK, "kerasmgpu"):
                    result = dict.fromkeys(guard.FIGURES, first)
                    if name != YARDSTICK:
                        result["least_cpu_ms_per_step"] *= left.pop(0)
                    made.append(
                        {
                            "workload": "lstm",
                            "contender": name,
                            "replicas": 1 if name == YARDSTICK else 2,
                            "round": number,
                            "result": result,
                        }
                    )
            return {"runs": made}

        monkeypatch.setattr(runs, "run", run)
        rows = guard.guard(
            ["lstm"], ["kerasmgpu"], [2], folder=str(tmp_path), **arguments
        )
        assert not left
        return {
            row["figure"]: row for row in rows if NAME in row["name"]
        }, asked

    return guarded


def test_a_slower_step_is_measured_twice_more(guarded):
    stored, _ = guarded([1.0, 3.0, 2.0], rounds=3, store=True)
    assert stored["step"]["value"] == 20.0
    rows, asked = guarded([2.2])
    assert asked == [1] and not rows["step"]["is_slower"]
    rows, asked = guarded([2.6, 2.0, 2.1])
    assert asked == [1, 2] and not rows["step"]["is_slower"]
    rows, _ = guarded([4.0, 4.0, 2.1])
    assert rows["step"]["is_slower"] and rows["step"]["expected"] == 20.0
    assert not rows["memory"]["is_slower"]
    rows, _ = guarded([4.0], limit=1.5)
    assert not rows["step"]["is_slower"]


def test_a_table_names_what_became_slower(guarded, capsys):
    guarded([2.0], store=True)
    rows, _ = guarded([3.0, 3.0, 3.0])
    guard.print_rows(rows.values())
    printed = capsys.readouterr().out.splitlines()
    (line,) = [line for line in printed if "SLOWER" in line]
    assert line == f"| {NAME} | step | 30.00 | 20.00 | SLOWER |"


def test_on_another_kind_of_cpu_the_limit_is_wider(
    guarded, capsys, monkeypatch
):
    guarded([2.0], store=True)
    own = machine.describe([])
    monkeypatch.setattr(
        machine, "describe", lambda gpus: {**own, "cpu_flags": ["other"]}
    )
    rows, asked = guarded([3.0])
    assert asked == [1] and not rows["step"]["is_slower"]
    assert rows["step"]["expected"] == 20.0
    assert "another kind of CPU" in capsys.readouterr().out
    rows, _ = guarded([4.0, 4.0, 4.0])
    assert rows["step"]["is_slower"]


def test_a_slower_machine_makes_no_step_slower(guarded):
    guarded([2.0], store=True)
    rows, asked = guarded([2.2], first=30.0)
    assert asked == [1] and rows["step"]["expected"] == 60.0
    rows, _ = guarded([2.6, 2.6, 2.6], first=30.0)
    assert rows["step"]["is_slower"]


def test_the_median_of_the_yardsticks_is_the_machine():
    now = {
        f"{n} one_device 1": dict.fromkeys(guard.FIGURES, [n])
        for n in (1, 3, 9)
    }
    stored = {name: dict.fromkeys(guard.FIGURES, 1.0) for name in now}
    each = guard._speed_of_each(now, stored)
    assert {name: set(speed.values()) for name, speed in each.items()} == {
        "1": {1},
        "3": {3},
        "9": {9},
    }
    for speed in guard._speed(now, stored).values():
        assert set(speed.values()) == {3}


def test_a_first_step_of_less_than_a_second_does_not_count():
    kind = "cpu_seconds_to_first_step"
    for first, is_slower in ((0.9, False), (1.3, True)):
        found = {NAME: {kind: [first]}}
        (row,) = guard._rows(
            found, {NAME: {kind: 0.7}}, {"lstm": {kind: 1}}, guard.LIMITS
        )
        assert row["is_slower"] == is_slower


def test_without_stored_figures_it_says_how_to_store_them(guarded):
    with pytest.raises(InputError, match="--store"):
        guarded([])


def test_a_run_that_fails_is_no_figure():
    run = {"workload": "lstm", "contender": "kerasmgpu", "failed": "because"}
    with pytest.raises(InputError, match="lstm, kerasmgpu failed: because"):
        guard.figures_of([run])
