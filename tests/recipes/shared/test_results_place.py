"""The last lines of a recipe."""

import shlex
import subprocess
import sys

import pytest

from kerasmgpu.recipes.shared import results_place, run_report
from tests.report import samples


def shown_by(line):
    """The commands of the second line, one after the other."""
    return line.removeprefix("to show them: ").split(" ; ")


def test_a_run_and_its_page(tmp_path):
    folder = samples.complete(tmp_path / "a run")
    (folder / "model.keras").touch()
    where, show = results_place.lines(str(folder))
    assert where.startswith(f"results: {folder} (")
    assert "history.jsonl" in where and "model.keras" in where
    (command,) = shown_by(show)
    name, *arguments = shlex.split(command)
    assert name == "kerasmgpu"
    subprocess.run([sys.executable, "-m", name, *arguments], check=True)
    assert (folder / "report.html").exists()


def test_of_several_runs(tmp_path):
    (tmp_path / "placements.json").write_text("[]")
    samples.complete(tmp_path / "single")
    where, show = results_place.lines(str(tmp_path))
    assert "(placements.json)" in where
    assert shown_by(show) == [f"kerasmgpu report {tmp_path}"]


def test_of_a_study(tmp_path):
    (tmp_path / "runs.json").write_text("[]")
    _, show = results_place.lines(str(tmp_path))
    (command,) = shown_by(show)
    done = subprocess.run(
        [sys.executable, *shlex.split(command)[1:]],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n"


def test_event_files_have_their_command(tmp_path):
    samples.complete(tmp_path)
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "tensorboard" / "events.out.tfevents.1.a").touch()
    _, show = results_place.lines(str(tmp_path))
    assert shown_by(show)[1] == f"tensorboard --logdir={tmp_path}"


def test_without_a_folder():
    where, show = results_place.lines(None)
    assert "--output_dir=FOLDER keeps" in where
    assert show.endswith("kerasmgpu report FOLDER")


@pytest.mark.parametrize("note", [None, "worse than the baseline"])
def test_a_figure_that_looks_wrong_says_why(note, capsys):
    result = run_report.Result(
        1, ["CPU:0"], 8, 0.1, 5, 1.0, 0.5, None, None, "data", {"rmse": 2.525}
    )
    notes = {"rmse": note} if note else None
    run_report.print_table(result, "loss", {"rmse": "held-out RMSE"}, notes)
    shown = capsys.readouterr().out
    assert ("2.5250 (worse than the baseline)" in shown) == bool(note)
