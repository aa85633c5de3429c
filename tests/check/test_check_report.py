"""The table of a check, and the file that it is made of."""

from kerasmgpu.check import check_report, stage_record
from kerasmgpu.check.stage_record import StageRecord
from kerasmgpu.errors import InputError


def run(on, replicas=None, workers=1, mesh=None, **errors):
    stages = ["TensorFlow starts", "build()", "step 1", "step 2", "step 10"]
    return {
        "on": on,
        "replicas": replicas,
        "workers": workers,
        "mesh": mesh,
        "stages": [
            {"stage": name, "seconds": 0.25, "error": errors.get(name)}
            for name in stages
        ],
    }


def test_a_row_per_stage_in_their_order(capsys):
    runs = [run("one device", 1), run("all devices", 4, 2)]
    check_report.print_table({"build": "m:b", "is_well": True, "runs": runs})
    output = capsys.readouterr().out
    words = ["one device", "4 replicas of 2 workers", "TensorFlow starts"]
    words += ["step 1", "step 2", "step 10", "checkpoint", "evaluate", "resume"]
    places = [output.index(word) for word in words]
    assert places == sorted(places)
    assert "what went wrong" not in output
    assert output.count("0.25 s") == 10
    assert "ALL WENT WELL on one device and on 4 replicas of 2 w" in output


def test_a_mesh_is_named(capsys):
    runs = [run("one device", 1), run("all devices", 4, 1, {"b": 2, "m": 2})]
    check_report.print_table({"build": "m:b", "is_well": True, "runs": runs})
    assert "and on mesh b=2, m=2." in capsys.readouterr().out


def test_a_failure_is_told_once_where_both_have_it(capsys):
    same = {"step 2": "ValueError: [red] (train.py, line 3: x)"}
    runs = [run("one device", 1, **same), run("all devices", 2, **same)]
    check_report.print_table({"build": "m:b", "is_well": False, "runs": runs})
    output = " ".join(capsys.readouterr().out.split())
    text = "one device and 2 replicas: ValueError: [red] (train.py, line 3: x)"
    assert output.count(text) == 1
    assert output.count("✗") == 2
    assert "FAILED: step 2 (one device), step 2 (2 replicas)." in output


def test_devices_that_never_started_have_a_heading(capsys):
    failed = run("all devices", **{"TensorFlow starts": "no such device"})
    runs = [run("one device", 1), failed]
    check_report.print_table({"build": "m:b", "is_well": False, "runs": runs})
    assert "all devices: no such device" in capsys.readouterr().out


def test_stages_are_read_while_one_runs(tmp_path):
    assert stage_record.read(tmp_path) == ([], None, {})
    record = StageRecord(tmp_path)
    record.enter("one")
    record.enter("two")
    record.tell(replicas=3)
    with open(tmp_path / "stages.jsonl", "a", encoding="utf-8") as file:
        file.write('{"stage": "ha')  # Of a process that was killed.
    ended, running, facts = stage_record.read(tmp_path)
    assert [stage["stage"] for stage in ended] == ["one"]
    assert (running, facts) == ("two", {"replicas": 3})


def test_errors_are_one_line(tmp_path):
    record = StageRecord(tmp_path)
    for error in (
        InputError("of\nours"),
        ValueError("of\nothers"),
        RuntimeError(
            "{{x}} kerasmgpu: worker 1 (a:1) is lost: it ended. This worker "
            "(0) can't continue."
        ),
    ):
        record.enter("stage")
        record.end(error)
    ended, _, _ = stage_record.read(tmp_path)
    assert [stage["error"] for stage in ended] == [
        "of ours",
        "ValueError: of others",
        "worker 1 is lost: it ended",
    ]
