"""Pieces of the page: tables, bars, legends. All text is escaped."""

import html
from collections.abc import Iterable, Sequence

_COLORS = 8
"""Runs with a color of their own; further ones take them again."""


def escape(text: object) -> str:
    """Text as HTML shows it, also in attributes."""
    return html.escape(str(text))


def mark(color: int) -> str:
    """The CSS class of a run's color; a negative number is neutral."""
    return f"run-{color % _COLORS}" if color >= 0 else "neutral"


def chip(color: int, name: str) -> str:
    """A run's color and name."""
    return f'<span class="chip {mark(color)}">{escape(name)}</span>'


def legend(names: Sequence[str]) -> str:
    """The colors of all runs; empty for one, which has its name on top."""
    if len(names) < 2:
        return ""
    chips = "".join(chip(color, name) for color, name in enumerate(names))
    return f'<p class="legend">{chips}</p>'


def details(summary: str, body: str) -> str:
    """What opens by a click."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: str,
    marked: Iterable[int] = (),
) -> str:
    """A table whose first column heads its rows.

    Args:
        head: Sequence of the columns' names.
        rows: Sequences of cells.
        caption: String, read out where the table can't be seen.
        marked: Positions of rows to highlight.
    """
    highlighted = set(marked)
    lines = []
    for position, (first, *cells) in enumerate(rows):
        kind = ' class="marked"' if position in highlighted else ""
        texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(
            f'<tr{kind}><th scope="row">{escape(first)}</th>{texts}</tr>'
        )
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        '<div class="scroll" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody>"
        "</table></div>"
    )


def bar(
    color: int,
    name: str,
    parts: Sequence[tuple[str, float, str]],
    text: str,
    scale: float = 1.0,
) -> str:
    """A bar of parts, with a name before it and a text after it.

    Args:
        color: Integer, see `mark`.
        name: String.
        parts: Sequence of `(class, share, what it is)`.
        text: String.
        scale: Float, share of the width that all parts together take.
    """
    pieces = "".join(
        f'<i class="{kind}" style="width:{100 * share * scale:.2f}%" '
        f'title="{escape(told)}"></i>'
        for kind, share, told in parts
        if share > 0
    )
    spoken = escape("; ".join(told for *_, told in parts))
    return (
        f'<div class="row">{chip(color, name)}<div class="bar" role="img" '
        f'aria-label="{spoken}">{pieces}</div><span>{escape(text)}</span></div>'
    )


def section(title: str, name: str, body: str, lead: str = "") -> str:
    """A section with its heading; `lead` is a sentence under it."""
    text = f'<p class="lead">{escape(lead)}</p>' * bool(lead)
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>'
        f"{text}{body}</section>"
    )


def missing(text: str) -> str:
    """A line in place of what no file tells."""
    return f'<p class="missing">{escape(text)}</p>'
