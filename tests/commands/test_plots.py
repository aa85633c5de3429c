"""Plots that can be read, with few points and with many."""

import math
import sys

import pytest

from kerasmgpu.commands import plots

matplotlib_image = pytest.importorskip("matplotlib.image")


def pixels_of_line(tmp_path, num_points):
    figure = plots.new_figure()
    axes = figure.add_subplot()
    x = list(range(1, num_points + 1))
    plots.line(axes, x, [0.5] * num_points, color=(1, 0, 0))
    plots.epoch_axis(axes)
    plots.save(figure, tmp_path / "plot.png")
    image = matplotlib_image.imread(tmp_path / "plot.png")[:, :, :3]
    return int(((image - (1, 0, 0)) ** 2).sum(axis=2).__lt__(0.01).sum())


def test_a_missing_matplotlib_is_told_once_and_early(monkeypatch, capsys):
    monkeypatch.setattr(plots, "_told", False)
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    plots.tell_if_missing()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("no plot: ") and "pip install matplotlib" in line
    assert plots.new_figure() is None
    assert capsys.readouterr().out == ""


def test_an_installed_matplotlib_is_not_mentioned(monkeypatch, capsys):
    monkeypatch.setattr(plots, "_told", False)
    plots.tell_if_missing()
    assert capsys.readouterr().out == ""


def test_one_point_is_seen(tmp_path):
    assert pixels_of_line(tmp_path, 1) > 20


def test_epochs_have_ticks_at_whole_numbers():
    axes = plots.new_figure().add_subplot()
    plots.line(axes, [1, 2], [0.5, math.nan])
    plots.epoch_axis(axes)
    assert all(tick == int(tick) for tick in axes.get_xticks())


@pytest.mark.parametrize(
    "counts, scale", [([1, 2, 4, 8], "log"), ([1, 2, 3, 4], "linear")]
)
def test_counts_have_the_ticks_and_no_others(counts, scale):
    axes = plots.new_figure().add_subplot()
    plots.line(axes, counts, counts)
    plots.count_axis(axes, counts, "replicas")
    assert list(axes.get_xticks()) == counts
    assert axes.get_xscale() == scale


def test_a_plot_that_fails_leaves_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "plot.png"
    path.write_bytes(b"before")
    figure = plots.new_figure()

    def full(temporary, **_):
        temporary.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", full)
    with pytest.raises(OSError):
        plots.save(figure, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["plot.png"]
    assert path.read_bytes() == b"before"
