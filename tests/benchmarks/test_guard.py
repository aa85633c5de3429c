"""What became slower is found, and measured again before it counts."""

import pytest

from benchmarks import guard, runs
from benchmarks.guard import YARDSTICK
from kerasmgpu.errors import InputError

NAME = "lstm kerasmgpu 2"


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """Function that guards with given multiples of one device's step."""

    def guarded(multiples, **arguments):
        left, asked = list(multiples), []

        def run(rounds, **settings):
            asked.append(rounds)
            made = []
            for number in range(rounds):
                for name in (YARDSTICK, "kerasmgpu"):
                    result = dict.fromkeys(guard.FIGURES, 10.0 + number)
                    if name != YARDSTICK:
                        result["host_cpu_ms_per_step"] *= left.pop(0)
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
        return {row["figure"]: row for row in rows}, asked

    return guarded


def test_a_slower_step_is_measured_twice_more(guarded):
    stored, _ = guarded([1.0, 3.0, 2.0], rounds=3, store=True)
    assert stored["step"]["ratio"] == 2.0
    rows, asked = guarded([2.2])
    assert asked == [1] and not rows["step"]["is_slower"]
    rows, asked = guarded([2.4, 2.0, 2.1])
    assert asked == [1, 2] and not rows["step"]["is_slower"]
    rows, _ = guarded([4.0, 4.0, 2.1])
    assert rows["step"]["is_slower"] and rows["step"]["stored"] == 2.0
    assert not rows["memory"]["is_slower"]
    rows, _ = guarded([4.0], limit=1.5)
    assert not rows["step"]["is_slower"]


def test_a_table_names_what_became_slower(guarded, capsys):
    guarded([2.0], store=True)
    rows, _ = guarded([3.0, 3.0, 3.0])
    guard.print_rows(rows.values())
    printed = capsys.readouterr().out.splitlines()
    (line,) = [line for line in printed if "SLOWER" in line]
    assert line == f"| {NAME} | step | 3.00 | 2.00 | SLOWER |"


def test_without_stored_ratios_it_says_how_to_store_them(guarded):
    with pytest.raises(InputError, match="--store"):
        guarded([])


def test_a_run_that_fails_is_no_ratio():
    run = {"workload": "lstm", "contender": "kerasmgpu", "failed": "because"}
    with pytest.raises(InputError, match="lstm, kerasmgpu failed: because"):
        guard.ratios([run])
