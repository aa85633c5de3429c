"""Plots as HTML: lines in an SVG that stretches, labels beside it as text.

Labels keep their size whatever the width of the page. Under each plot is a
table of its values; `page.js` shows them at the pointer.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Sequence

from kerasmgpu.report.axes import Axis, axis
from kerasmgpu.report.html_parts import details, escape, mark, table
from kerasmgpu.report.units import Format, percent, plain, short

_MOST_POINTS = 600
"""Points that are drawn of a line: of a longer one, every n-th."""
_FEW_POINTS = 30
"""Points of a line that are drawn as dots, too."""
_APART = 0.12
"""Share of the width from one label of the x axis to the next."""
_MOST_ROWS = 60
"""Rows of the table under a plot."""
_DECADES_FOR_LOG = 1.7
"""Decades from which on positive values get a logarithmic axis."""

Point = tuple[float, float]


@dataclasses.dataclass
class Line:
    """One line of a plot.

    Attributes:
        name: String.
        color: Integer, number of the run; negative for a neutral color.
        points: Sequence of `(x, y)` by x; a NaN is a gap.
        band: Sequence of `(x, low, high)`, an area behind the line.
        dashed: Whether it is dashed.
        bars: Sequence of `(from, to, y)`, a histogram that is drawn instead
            of the points.
    """

    name: str
    color: int
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    dashed: bool = False
    bars: Sequence[tuple[float, float, float]] = ()


def plot(
    title: str,
    lines: Sequence[Line],
    x_label: str,
    y_format: Format = plain,
    x_format: Format = short,
    log: bool | None = False,
    log_x: bool = False,
    from_zero: bool = False,
    integers: bool = False,
    x_ticks: list[float] | None = None,
    note: str = "",
    dashes: tuple[str, str] = ("training", "validation"),
) -> str:
    """Returns the HTML of a plot; empty without a point, or for a constant.

    Args:
        title: String, the quantity and its unit.
        y_format: Format of y values at the pointer and in the table.
        log: Whether the y axis is logarithmic; `None`: if values differ much.
        from_zero: Whether the y axis begins at 0.
        integers: Whether x are integers.
        x_ticks: List of the ticks of the x axis, instead of round ones.
        note: String, a sentence under the title.
        dashes: What solid lines are, and dashed ones.
    """
    lines = [_checked(line) for line in lines if _finite(line)]
    if not lines:
        return ""
    ys = [y for line in lines for _, y in line.points]
    ys += [y for line in lines for _, *pair in line.band for y in pair]
    ys = [y for y in ys if math.isfinite(y)]
    if len(set(ys)) == 1 and any(len(line.points) > 1 for line in lines):
        return ""
    if log is None:
        log = min(ys) > 0 and math.log10(max(ys) / min(ys)) > _DECADES_FOR_LOG
    xs = [x for line in lines for x, _ in line.points if math.isfinite(x)]
    xs += [x for line in lines for *edges, _ in line.bars for x in edges]
    x_axis = axis(xs, log_x, integers=integers, padded=False)
    x_axis.ticks = _apart(x_ticks or x_axis.ticks, x_axis)
    is_share = y_format is percent
    y_axis = axis(ys, log, from_zero and not log, is_share=is_share)
    drawn = "".join(_svg(line, x_axis, y_axis) for line in lines)
    levels = [y_axis.share(tick) for tick in y_axis.ticks]
    grid = "".join(
        f'<path class="grid" d="M0 {_y(level)}H1000"/>' for level in levels
    )
    ticks = "".join(
        f'<span class="y" style="bottom:{100 * level:.2f}%">'
        f"{escape(_y_label(tick, is_share))}</span>"
        for tick, level in zip(y_axis.ticks, levels)
    ) + "".join(
        f'<span class="x" style="left:{100 * share:.2f}%;'
        f'transform:translateX(-{100 * share:.0f}%)">'
        f"{escape(x_format(tick))}</span>"
        for tick in x_axis.ticks
        for share in [x_axis.share(tick)]
    )
    labels = [_y_label(tick, is_share) for tick in y_axis.ticks]
    margin = max(map(len, labels), default=0)
    hover = [_hover(one, x_axis, y_axis, x_format, y_format) for one in lines]
    kinds = {line.dashed for line in lines}
    notes = [note] * bool(note) + ["logarithmic axis"] * bool(log)
    notes += ["some lines coincide"] * _coincide(lines, y_axis)
    about = escape(" · ".join(notes))
    return (
        f'<figure class="plot"><figcaption>{escape(title)}'
        f"{f'<small>{about}</small>' * bool(about)}</figcaption>"
        f"{_dashes(*dashes) * (len(kinds) > 1)}"
        f'<div class="canvas" role="img" tabindex="0" '
        f'style="--labels:{margin}ch" '
        f'aria-label="{escape(_spoken(title, lines, x_label, y_format))}" '
        f'data-lines="{escape(json.dumps(hover))}">'
        '<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        f'aria-hidden="true">{grid}{drawn}</svg>{ticks}</div>'
        f'<div class="x-label">{escape(x_label)}</div>'
        f"{_values(title, lines, x_label, x_format, y_format)}</figure>"
    )


def _apart(ticks: Sequence[float], x_axis: Axis) -> list[float]:
    """Returns the ticks whose labels don't meet."""
    found: list[float] = []
    for tick in ticks:
        if not found or x_axis.share(tick) - x_axis.share(found[-1]) >= _APART:
            found.append(tick)
    return found


def _y_label(tick: float, is_share: bool) -> str:
    return f"{100 * tick:.4g} %" if is_share else short(tick)


def _dashes(solid: str, dashed: str) -> str:
    return (
        f'<p class="dashes"><i class="solid"></i>{escape(solid)}'
        f'<i class="dashed"></i>{escape(dashed)}</p>'
    )


def _finite(line: Line) -> bool:
    return any(math.isfinite(x) and math.isfinite(y) for x, y in line.points)


def _checked(line: Line) -> Line:
    """The line without infinite values, and with few enough points."""
    step = math.ceil(len(line.points) / _MOST_POINTS)
    points = [(x, y if math.isfinite(y) else math.nan) for x, y in line.points]
    return dataclasses.replace(line, points=points[::step])


def _coincide(lines: Sequence[Line], y_axis: Axis) -> bool:
    """Whether a line hides another one."""
    for one, other in itertools.combinations(lines, 2):
        pairs = list(zip(one.points, other.points))
        if len(one.points) == len(other.points) > 1 and all(
            a[0] == b[0] and (a[1] == b[1] or _close(a[1], b[1], y_axis))
            for a, b in pairs
        ):
            return True
    return False


def _close(one: float, other: float, y_axis: Axis) -> bool:
    if not math.isfinite(one + other):
        return math.isnan(one) and math.isnan(other)
    return abs(y_axis.share(one) - y_axis.share(other)) < 0.005


def _y(level: float) -> str:
    return f"{1000 - 1000 * level:.1f}"


def _svg(line: Line, x_axis: Axis, y_axis: Axis) -> str:
    def at(x: float, y: float) -> str:
        return f"{1000 * x_axis.share(x):.1f} {_y(y_axis.share(y))}"

    pieces = [
        [at(*point) for point in group]
        for is_finite, group in itertools.groupby(
            line.points, lambda point: all(map(math.isfinite, point))
        )
        if is_finite
    ]
    path = "".join("M" + "L".join(piece) for piece in pieces)
    is_short = len(line.points) <= _FEW_POINTS
    dots = [
        f"M{place}h0"
        for piece in pieces
        for place in piece
        if is_short or len(piece) == 1
    ]
    areas = [
        [at(x, high) for x, _, high in group]
        + [at(x, low) for x, low, _ in reversed(group)]
        for is_finite, found in itertools.groupby(
            line.band, lambda point: all(map(math.isfinite, point))
        )
        if is_finite
        for group in [[*found]]
    ]
    if line.bars:
        corners = [
            [(low, 0.0), (low, y), (high, y), (high, 0.0)]
            for low, high, y in line.bars
        ]
        areas = [[at(*corner) for bar in corners for corner in bar]]
        path, dots = "M" + "L".join(areas[0]), []
    filled = "".join(f"M{'L'.join(area)}Z" for area in areas)
    kind = "line dashed" if line.dashed else "line"
    return (
        f'<g class="{mark(line.color)}">'
        + (f'<path class="band" d="{filled}"/>' if areas else "")
        + f'<path class="{kind}" d="{path}"/>'
        + (f'<path class="dots" d="{"".join(dots)}"/>' if dots else "")
        + "</g>"
    )


def _hover(
    line: Line, x_axis: Axis, y_axis: Axis, x_format: Format, y_format: Format
) -> dict[str, object]:
    """What `page.js` shows: name, color, and points with their texts."""
    return {
        "name": line.name,
        "mark": mark(line.color),
        "points": [
            [
                round(x_axis.share(x), 4),
                round(1 - y_axis.share(y), 4),
                x_format(x),
                y_format(y),
            ]
            for x, y in line.points
            if math.isfinite(x) and math.isfinite(y)
        ],
    }


def _spoken(
    title: str, lines: Sequence[Line], x_label: str, y_format: Format
) -> str:
    """The text alternative: where each line begins, ends, and its extremes."""
    texts = []
    for line in lines:
        ys = [y for _, y in line.points if math.isfinite(y)]
        texts.append(
            f"{line.name} from {y_format(ys[0])} to {y_format(ys[-1])}, "
            f"between {y_format(min(ys))} and {y_format(max(ys))}"
        )
    return f"{title} by {x_label}: {'; '.join(texts)}."


def _values(
    title: str,
    lines: Sequence[Line],
    x_label: str,
    x_format: Format,
    y_format: Format,
) -> str:
    xs = sorted({x for line in lines for x, _ in line.points})
    step = math.ceil(len(xs) / _MOST_ROWS)
    shown = xs[::step] + xs[-1:] * (step > 1 and (len(xs) - 1) % step > 0)
    columns = [dict(line.points) for line in lines]
    rows = [
        [x_format(x), *(y_format(c.get(x, math.nan)) for c in columns)]
        for x in shown
    ]
    names = [line.name for line in lines]
    text = table([x_label, *names], rows, caption=title)
    return details("Values" + f" (one in {step})" * (step > 1), text)
