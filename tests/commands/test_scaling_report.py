"""The scaling report, over a recipe that the test makes up."""

import json
import os
import re
import signal
import subprocess

import pytest

import kerasmgpu
from kerasmgpu.commands import (
    child_processes,
    scaling_report,
    scaling_tables,
)
from kerasmgpu.errors import InputError
from tests import console
from tests.commands.process_watch import wait_for

RECIPE = """
import json, os, sys, time
flags = dict(flag.lstrip("-").split("=") for flag in sys.argv[1:])
replicas = int(flags["num_replicas"])
print(f"working on {replicas}")
if flags.get("sleep"):
    open(flags["sleep"], "w").write(str(os.getpid()))
    time.sleep(600)
if flags.get("fail_on") == str(replicas):
    print("error: not enough devices", file=sys.stderr)
    print("goodbye")
    sys.exit(1)
result = {
    "replicas": replicas,
    "devices": [f"CPU:{index}" for index in range(replicas)],
    "virtual_devices": flags.get("virtual_devices"),
    "global_batch_size": 250,
    "learning_rate": 0.03,
    "seconds": 40 / replicas,
    "loss": 0.0281,
    # Twice the replicas do 1.5 times the work per second.
    "examples_per_second": {1: 1000, 2: 1500, 4: 2250}[replicas],
    "examples_per_second_per_replica":
        {1: 1000, 2: 1500, 4: 2250}[replicas] / replicas,
}
if flags.get("forget"):
    del result[flags["forget"]]
os.makedirs(flags["output_dir"])
with open(os.path.join(flags["output_dir"], "result.json"), "w") as file:
    json.dump(result, file)
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    folder = tmp_path / "made_up"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "recipe.py").write_text(RECIPE)
    library = os.path.dirname(os.path.dirname(kerasmgpu.__file__))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{library}")
    return "made_up.recipe"


def report_on(recipe, tmp_path, counts=(1, 2, 4), **options):
    options = {"virtual_devices": True, **options}
    return scaling_report.run(recipe, counts, tmp_path / "out", **options)


def test_speed_up_and_efficiency(recipe, tmp_path, capfd):
    # Out of order and twice: each count runs once, the smallest first.
    report = report_on(recipe, tmp_path, counts=(4, 1, 2, 2))
    runs = report["runs"]
    assert [run["replicas"] for run in runs] == [1, 2, 4]
    assert [run["speed_up"] for run in runs] == [1.0, 1.5, 2.25]
    assert [run["efficiency"] for run in runs] == [1.0, 0.75, 0.5625]
    on_disk = (tmp_path / "out" / "report.json").read_text()
    assert json.loads(on_disk) == report
    printed = capfd.readouterr().out
    assert "working on 4" in printed  # What a run prints is seen.
    for figure in ("2.25", "56%", "562", "0.02810", "10.00"):
        assert figure in printed
    log = tmp_path / "out" / "replicas-4.log"
    assert log.read_text() == "working on 4\n"


def test_compares_with_the_smallest_count_that_ran(recipe, tmp_path):
    runs = report_on(recipe, tmp_path, counts=(2, 4))["runs"]
    assert [run["speed_up"] for run in runs] == [1.0, 1.5]
    assert [run["efficiency"] for run in runs] == [1.0, 0.75]


def test_a_run_that_fails_is_shown_and_the_others_count(
    recipe, tmp_path, capfd
):
    report = report_on(recipe, tmp_path, recipe_flags=["--fail_on=2"])
    first, second, third = report["runs"]
    assert second["failed"] == "not enough devices"
    assert "speed_up" not in second
    assert (first["speed_up"], third["speed_up"]) == (1.0, 2.25)
    printed = capfd.readouterr().out
    assert "2 replicas failed: not enough devices" in printed


@pytest.mark.parametrize("key", scaling_report.RESULT_KEYS)
def test_a_result_that_lacks_a_figure_is_a_failure(recipe, tmp_path, key):
    report = report_on(
        recipe, tmp_path, counts=[1], recipe_flags=[f"--forget={key}"]
    )
    assert report["runs"][0]["failed"].endswith(f"missing: {key}")


def test_logical_devices_are_asked_for_and_told(recipe, tmp_path, capfd):
    report = report_on(recipe, tmp_path, counts=[2])
    assert report["runs"][0]["result"]["virtual_devices"] == "2"
    assert "share the same cores" in " ".join(capfd.readouterr().out.split())


@pytest.mark.parametrize("gpus", [[], ["NVIDIA A100"] * 4])
def test_gpus_are_taken_where_there_are_any(
    recipe, tmp_path, capfd, monkeypatch, gpus
):
    monkeypatch.setattr(child_processes, "visible_gpus", lambda: gpus)
    report = report_on(recipe, tmp_path, counts=[2], virtual_devices=False)
    asked = report["runs"][0]["result"]["virtual_devices"]
    assert asked == (None if gpus else "2")
    told = "share the same cores" in " ".join(capfd.readouterr().out.split())
    assert told == (gpus == [])


def test_plot_is_a_picture(recipe, tmp_path):
    report_on(recipe, tmp_path)
    picture = (tmp_path / "out" / "report.png").read_bytes()
    assert picture.startswith(b"\x89PNG")


def test_published_rows_stand_beside_ours(capsys):
    result = {
        "devices": ["GPU:0", "GPU:1"],
        "seconds": 12.5,
        "loss": 0.027,
        "examples_per_second_per_replica": 99.0,
    }
    run = {"replicas": 2, "result": result, "speed_up": 1.9, "efficiency": 0.95}
    scaling_tables.print_tables(
        {
            "recipe": "autoencoder",
            "on_logical_cpu_devices": False,
            "runs": [run],
        }
    )
    printed = capsys.readouterr().out
    # The published table: 562.51 s, 0.02831, 1.52, 76 % on two.
    for figure in ("562.51", "0.02831", "1.52", "76%", "GTX 970", "95%"):
        assert figure in printed
    assert "share the same cores" not in printed
    assert "by the examples/s of the median epoch" in printed


@pytest.mark.parametrize(
    "name",
    [
        "nope",
        "no.such.recipe",
        "__init__",
        # Rooms of recipes, which are none.
        "datasets",
        "kerasmgpu.recipes.shared",
    ],
)
def test_an_unknown_recipe_lists_the_recipes(tmp_path, name):
    with pytest.raises(InputError, match="expected one of: .*autoencoder"):
        report_on(name, tmp_path)


@pytest.mark.parametrize(
    "flag", ["--num_replicas=3", "--output_dir=x", "-virtual_devices=2"]
)
def test_flags_of_the_report_are_refused_behind_the_dashes(
    recipe, tmp_path, flag
):
    with pytest.raises(InputError, match="is set by the report itself"):
        report_on(recipe, tmp_path, recipe_flags=[flag])


@pytest.mark.parametrize(
    "flag, message",
    [
        ("--nosuchflag=1", "polynomial: Unknown command line flag"),
        ("--epochs=many", "polynomial: --epochs: must be an integer"),
    ],
)
def test_a_recipes_wrong_flags_are_told_before_anything_is_started(
    tmp_path, monkeypatch, flag, message
):
    monkeypatch.setattr(child_processes, "visible_gpus", pytest.fail)
    with pytest.raises(InputError, match=message):
        report_on(
            "polynomial",
            tmp_path,
            recipe_flags=[flag],
            virtual_devices=False,
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flags",
    [[], ["--placement=data_parallel"], ["--placement", "data_parallel"]],
)
def test_deepconn_is_reported_on_with_a_model_on_each_device(
    tmp_path, monkeypatch, flags
):
    commands = []
    monkeypatch.setattr(
        child_processes,
        "run_logged",
        lambda command, log: commands.append(command) or (1, []),
    )
    report_on("deepconn", tmp_path, counts=[2], recipe_flags=flags)
    (command,) = commands
    assert "--num_replicas=2" in command
    assert " ".join(command).count("placement") == 1
    assert re.search("--placement[= ]data_parallel", " ".join(command))


@pytest.mark.parametrize("flags", [["--placement=all"], ["-placement", "all"]])
def test_other_placements_of_deepconn_are_refused(tmp_path, flags):
    with pytest.raises(InputError, match="Received: --placement=all; leave it"):
        report_on("deepconn", tmp_path, recipe_flags=flags)
    assert not (tmp_path / "out").exists()


def command(*arguments):
    return console.command("scaling_report", *arguments)


def test_command_line(recipe, tmp_path):
    done = subprocess.run(
        command(
            recipe,
            "--replica_counts=1,2",
            "--virtual_devices",
            f"--output_dir={tmp_path / 'out'}",
            "--",
            "--fail_on=1",
        ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "1 replica failed: not enough devices" in done.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["recipe_flags"] == ["--fail_on=1"]
    assert report["runs"][1]["speed_up"] == 1.0


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_child(recipe, tmp_path, stop):
    number = tmp_path / "number"
    parent = subprocess.Popen(
        command(
            recipe,
            "--virtual_devices",
            f"--output_dir={tmp_path / 'out'}",
            "--",
            f"--sleep={number}",
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: number.exists() and number.read_text())
    child = int(number.read_text())
    parent.send_signal(stop)  # To the parent alone, not to its group.
    _, errors = parent.communicate(timeout=30)
    assert parent.returncode == (130 if stop == signal.SIGINT else 143)
    assert "Traceback" not in errors
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
