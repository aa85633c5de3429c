"""Pieces of the page: tables, bars, legends. All text is escaped."""

import html
from collections.abc import Iterable, Sequence

_COLORS = 8
"""Runs with a color of their own; further ones take them again."""

NOTHING = "–"
"""A cell of a table that tells nothing."""

COLORS_OF_PARTS = 12
"""Colors of the parts of a bar, `part-0` and so on in the style sheet."""


def escape(text: object) -> str:
    """Text as HTML shows it, also in attributes."""
    return html.escape(str(text))


def mark(color: int) -> str:
    """The CSS class of a run's color; a negative number is neutral."""
    return f"run-{color % _COLORS}" if color >= 0 else "neutral"


def chip(kind: str, name: str) -> str:
    """A name behind the color of a CSS class."""
    return f'<span class="chip {kind}">{escape(name)}</span>'


def legend(names: Sequence[str]) -> str:
    """The colors of all runs; empty for one, which has its name on top."""
    if len(names) < 2:
        return ""
    chips = "".join(chip(mark(color), name) for color, name in enumerate(names))
    return f'<p class="legend">{chips}</p>'


def details(summary: str, body: str) -> str:
    """What opens by a click."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


class Missing(str):
    """A line in place of what no file tells; a section of it is left out.

    Attributes:
        text: String, the line as text.
    """

    text: str


def missing(text: str) -> Missing:
    """A line in place of what no file tells."""
    made = Missing(f'<p class="missing">{escape(text)}</p>')
    made.text = text
    return made


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: str,
    kind: str = "",
) -> str:
    """A table; the first cell of a row heads it.

    Columns in which no row tells anything are left out.

    Args:
        caption: String, read out where the table can't be seen.
        kind: String, its CSS class.
    """

    def line(first: object, *cells: object, tag: str, scope: str) -> str:
        others = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        return f'<tr><th scope="{scope}">{escape(first)}</th>{others}</tr>'

    columns = [*zip(head, *rows)]
    told = [c for n, c in enumerate(columns) if not n or {*c[1:]} - {NOTHING}]
    head, *rows = zip(*told)
    body = "".join(line(*row, tag="td", scope="row") for row in rows)
    return (
        f'<div class="scroll {kind}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption>"
        f"<thead>{line(*head, tag='th', scope='col')}</thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def bar(
    color: int,
    name: str,
    parts: Sequence[tuple[str, float, str, str]],
    text: str,
) -> str:
    """A bar of parts, with a name before it and a text after it.

    Args:
        parts: Sequence of `(class, share of the width, text, name)`.
    """
    pieces = "".join(
        f'<i class="{kind}" style="width:{100 * share:.2f}%" '
        f'title="{escape(f"{what}: {told}")}"></i>'
        for kind, share, told, what in parts
        if share > 0
    )
    spoken = escape("; ".join(f"{what}: {told}" for *_, told, what in parts))
    return (
        f'<div class="row">{chip(mark(color), name)}<div class="bar" role="img" '
        f'aria-label="{spoken}">{pieces}</div><span>{escape(text)}</span></div>'
    )
