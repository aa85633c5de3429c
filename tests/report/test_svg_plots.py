"""Axes and lines of plots."""

import json
import math
import re

import pytest

from kerasmgpu.report import svg_plots, units
from kerasmgpu.report.axes import axis
from kerasmgpu.report.svg_plots import Line, plot
from tests.report.pages import parse


@pytest.mark.parametrize(
    "values, options, ticks",
    [
        ([0, 10], {}, [0, 2, 4, 6, 8, 10]),
        ([3, 9.5], {"from_zero": True}, [0, 2, 4, 6, 8, 10]),
        ([1, 2], {"integers": True, "padded": False}, [1, 2]),
        ([1], {"integers": True, "padded": False}, [0, 1, 2]),
        ([0.1, 0.97], {"is_share": True}, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ([0], {}, [-1, -0.5, 0, 0.5, 1]),
        ([0.001, 1000], {"log": True}, [1e-3, 1e-2, 0.1, 1, 10, 100, 1000]),
        ([20, 90], {"log": True}, [20, 40, 60, 80]),
    ],
)
def test_ticks_are_round(values, options, ticks):
    found = axis(values, **options)
    assert found.ticks[: len(ticks)] == pytest.approx(ticks)
    assert all(-1e-9 <= found.share(tick) <= 1 + 1e-9 for tick in found.ticks)


@pytest.mark.parametrize("low, high", [(1e-300, 1e300), (5, 5 + 1e-12)])
def test_extreme_limits_have_ticks(low, high):
    for log in (False, True):
        found = axis([low, high], log=log)
        assert 1 <= len(found.ticks) < 12
        assert found.share(low) < found.share(high)


def path_of(html, kind="line"):
    return re.search(rf'<path class="{kind}" d="([^"]*)"', html)[1]


def test_a_nan_is_a_gap_and_a_lone_point_a_dot():
    points = [(1, 1.0), (2, math.nan), (3, 3.0), (4, 4.0), (5, math.inf)]
    html = plot("Loss", [Line("run", 0, points)], "epoch")
    assert path_of(html).count("M") == 2
    assert path_of(html, "dots").count("M") == 3
    many = [(float(n), float(n) if n != 50 else math.nan) for n in range(100)]
    many[49] = (49.0, math.nan)
    many[48:49] = [(48.0, 5.0)]
    many[47] = (47.0, math.nan)
    html = plot("Loss", [Line("run", 0, many)], "epoch")
    assert path_of(html, "dots").count("M") == 1


def test_points_and_labels_are_within_the_frame():
    points = [(1.0, 0.0), (2.0, 5.0), (3.0, 10.0)]
    html = plot("Loss", [Line("run", 0, points)], "epoch", from_zero=True)
    numbers = [float(n) for n in re.findall(r"[\d.]+", path_of(html))]
    assert all(10 <= number <= 990 for number in numbers)
    for share, moved in re.findall(r"left:([\d.]+)%;.*?-(\d+)%", html):
        assert float(share) == pytest.approx(float(moved), abs=1)


def test_labels_do_not_meet():
    points = [(x / 1000, 1.0 + x) for x in range(50, 110, 10)]
    html = plot("Steps", [Line("run", 0, points)], "time", log_x=True)
    places = [
        float(p) for p in re.findall(r'class="x" style="left:([\d.]+)', html)
    ]
    assert len(places) > 1
    assert all(b - a >= 12 for a, b in zip(places, places[1:]))


def test_a_constant_is_no_plot():
    points = [(1, 0.5), (2, 0.5), (3, 0.5)]
    assert plot("Rate", [Line("run", 0, points)], "epoch") == ""
    other = Line("other", 1, [(1, 0.5), (2, 0.6)])
    assert plot("Rate", [Line("run", 0, points), other], "epoch")


def test_an_area_ends_at_a_gap():
    nan = math.nan
    points = [(1, 1.0), (2, 2.0), (3, nan), (9, 1.0), (10, 2.0)]
    band = [(x, y - 0.5, y + 0.5) for x, y in points]
    html = plot("Power", [Line("run", 0, points, band)], "minutes")
    assert path_of(html, "band").count("M") == 2
    assert "nan" not in path_of(html, "band")


def test_without_a_finite_value_there_is_no_plot():
    assert plot("Loss", [Line("run", 0, [(1, math.nan)])], "epoch") == ""
    assert plot("Loss", [], "epoch") == ""


def test_one_point_is_drawn():
    html = plot("Loss", [Line("run", 0, [(1, 2.5)])], "epoch", integers=True)
    assert path_of(html, "dots") == "M500.0 500.0h0"


def test_positive_values_of_some_decades_get_a_logarithmic_axis():
    points = [(1, 100.0), (2, 0.1)]
    html = plot("Loss", [Line("run", 0, points)], "epoch", log=None)
    assert "logarithmic axis" in html
    html = plot(
        "Loss", [Line("run", 0, [*points, (3, 0.0)])], "epoch", log=None
    )
    assert "logarithmic axis" not in html


def test_what_hovers_is_read_out_and_stands_in_the_table():
    points = [(1, 0.5), (2, 0.25)]
    html = plot("Share", [Line("a", 0, points)], "epoch", units.percent)
    page = parse(html)
    (canvas,) = page.find("div", "canvas")
    (line,) = json.loads(canvas["data-lines"])
    assert [point[2:] for point in line["points"]] == [
        ["1", "50 %"],
        ["2", "25 %"],
    ]
    assert canvas["aria-label"] == (
        "Share by epoch: a from 50 % to 25 %, between 25 % and 50 %."
    )
    assert page.tables["Share"] == [
        ["epoch", "a"],
        ["1", "50 %"],
        ["2", "25 %"],
    ]


def test_long_lines_are_thinned():
    points = [(float(n), float(n)) for n in range(10_000)]
    html = plot("Loss", [Line("a", 0, points)], "epoch")
    assert path_of(html).count("L") < svg_plots._MOST_POINTS
    table = parse(html).tables["Loss"]
    assert 30 < len(table) < svg_plots._MOST_ROWS + 4


@pytest.mark.parametrize(
    "other, told",
    [
        ([1.0, 2.0, math.nan], True),
        ([1.001, 2.0, math.nan], True),
        ([1.0, 1.9, math.nan], False),
        ([1.0, 2.0, 2.0], False),
        ([1.0, 2.0], False),
    ],
)
def test_lines_that_hide_others_are_told(other, told):
    lines = [
        Line(str(number), number, list(enumerate(values)))
        for number, values in enumerate([[1.0, 2.0, math.nan], other])
    ]
    assert ("some lines coincide" in plot("Loss", lines, "epoch")) == told
