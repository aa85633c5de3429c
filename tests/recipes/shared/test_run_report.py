"""What people read: some lines of progress, a table, a curve."""

import dataclasses
import sys
import types

from kerasmgpu.commands import plots
from kerasmgpu.recipes.shared import run_report
from kerasmgpu.recipes.shared.run_folder import RunFolder

RESULT = run_report.Result(
    replicas=2,
    devices=["CPU:0", "CPU:1"],
    global_batch_size=250,
    learning_rate=0.003,
    steps=40,
    seconds=12.345,
    loss=0.012345,
    examples_per_second=12345.6,
    examples_per_second_per_replica=6172.8,
    data="generated, not [real]",
    figures={"rmse": 0.84321, "users": 61, "held_out": "a tenth"},
)
LABELS = {"rmse": "RMSE (stars)", "users": "users", "held_out": "held out"}
CURVE = run_report.Curve(
    "RMSE (stars)", {"rmse": "training", "val_rmse": "held out"}, 0.9
)
HISTORY = [
    {"epoch": 1, "rmse": 1.0, "val_rmse": 1.1},
    {"epoch": 2, "rmse": 0.9, "val_rmse": None},
]


def test_the_table_has_every_figure(capsys):
    run_report.print_table(RESULT, "whole-row loss", LABELS)
    out = capsys.readouterr().out
    for text in (
        "generated, not [real]",
        "CPU:0, CPU:1",
        "0.003",
        "12.35",
        "0.01235",
        "0.8432",
        "RMSE (stars)",
        "61",
        "a tenth",
        "12,346",
        "6,173",
    ):
        assert text in out


def test_the_median_leaves_out_epochs_without_the_figure():
    history = [{"speed": value} for value in (None, 1.0, 5.0, 3.0)]
    assert run_report.median_of(history, "speed") == 3.0
    assert run_report.median_of(history[:1], "speed") is None


def test_too_few_steps_for_a_speed_are_said(capsys):
    result = dataclasses.replace(RESULT, examples_per_second=None)
    run_report.print_table(result, "loss", LABELS)
    assert "too few steps" in capsys.readouterr().out


def open_folder(path):
    return RunFolder(path, types.SimpleNamespace(resume=False))


def test_the_learning_curve_is_a_png(tmp_path):
    run_report.draw_learning_curve(open_folder(tmp_path), HISTORY, CURVE)
    png = (tmp_path / "learning_curve.png").read_bytes()
    assert png.startswith(b"\x89PNG")


def test_without_matplotlib_one_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(plots, "_told", False)
    run_report.draw_learning_curve(open_folder(tmp_path), HISTORY, CURVE)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 and "pip install matplotlib" in lines[0]
    assert not (tmp_path / "learning_curve.png").exists()


def test_device_names_are_short(replicas):
    assert run_report.short_names(replicas(2)) == ["CPU:0", "CPU:1"]
