"""The command, as a user runs it."""

import json

from kerasmgpu.plan.link_rates import link
from kerasmgpu.plan.scaling_prediction import plan
from kerasmgpu.plan.step_time import Link, Machines, Step
from tests import console

RESNET = (
    "--step_seconds=0.3",
    "--batch_size_per_replica=64",
    "--parameters=25.6e6",
)


def command(*flags):
    return console.run("plan", *flags)


def test_table_file_and_plot(tmp_path):
    done = command(*RESNET, "--link=nvlink3", f"--output_dir={tmp_path / 'o'}")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "o" / "plan.json").read_text())
    counts = [row["replicas"] for row in report["predictions"]]
    assert counts == [2**power for power in range(11)]
    assert report["scaling"] == "weak"
    step = Step(64, 0.3, 4 * 25.6e6)
    machines = Machines(8, link("nvlink3"), link("25gbit"))
    assert report["predictions"] == plan(step, machines)["predictions"]
    last = report["predictions"][-1]
    assert f"{last['speed_up']:.2f}" in done.stdout
    assert report["verdict"] in done.stdout
    picture = (tmp_path / "o" / "plan.png").read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_flags_reach_the_prediction(tmp_path):
    done = command(
        "--step_seconds=0.5",
        "--global_batch_size=64",
        "--bytes=8e9",
        "--fixed_seconds=0.1",
        "--host_seconds=0.2",
        "--host_seconds_per_replica=0.125",
        "--input_examples_per_second=640",
        "--overlap=0.5",
        "--link=40",
        "--latency_seconds=0.25",
        "--link_between=8",
        "--latency_between_seconds=0.5",
        "--replicas_per_machine=2",
        "--all_reduce=ring",
        "--replica_counts=4",
        "--worth=0.7",
        f"--output_dir={tmp_path}",
    )
    assert done.returncode == 0, done.stderr
    step = Step(64, 0.5, 8e9, 0.1, 0.2, 0.125, 640.0, 0.5)
    machines = Machines(2, Link(40e9, 0.25), Link(8e9, 0.5), "ring")
    expected = plan(step, machines, (4,), global_batch_size=64, worth=0.7)
    report = json.loads((tmp_path / "plan.json").read_text())
    for key, value in expected.items():
        assert report[key] == value


def test_verdict_names_the_number_and_the_limit():
    step = Step(64, 0.1, 0.0, host_seconds=0.05)
    machines = Machines(8, Link(1e9))
    report = plan(step, machines, (2, 4, 8))
    # The host needs 0.1 s for two: from there on it is the bottleneck.
    assert report["last_that_helps"] == 2
    assert "More than 2 replicas (2.00 times as fast" in report["verdict"]
    assert "The bottleneck is host" in report["verdict"]
    assert "at least 50 % up to 4" in report["verdict"]


def test_published_measurements_are_shown():
    done = command("--published")
    assert done.returncode == 0, done.stderr
    assert "VGG-16" in done.stdout and "68%" in done.stdout


def test_a_throughput_log_lacks_the_bytes(tmp_path):
    path = tmp_path / "throughput.jsonl"
    figures = {
        "replicas": 1,
        "steps": 10,
        "examples": 640,
        "step_seconds_median": 0.2,
        "input_wait_share": 0.0,
    }
    path.write_text(json.dumps(figures) + "\n")
    done = command(f"--from={path}")
    assert done.returncode == 1
    assert "give --parameters or --bytes" in done.stderr
    # Twice the measured batch of 64: twice the 200 ms.
    done = command(
        f"--from={path}", "--parameters=0.1", "--batch_size_per_replica=128"
    )
    assert done.returncode == 0, done.stderr
    assert "400.0" in done.stdout and "note:" not in done.stdout
