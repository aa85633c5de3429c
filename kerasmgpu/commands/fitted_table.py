"""Tables that fit any width: no figure and no word of them is cut.

A table that is too wide has narrower headings; then the same rows follow each
other with some of the columns each, or rows and columns are swapped, whichever
takes fewer lines; and where not even two columns fit, each row is a list.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

_WIDEST_TEXT = 100  # Columns of text that nobody limits.
_BORDER, _PADDING = 1, 2  # Columns between cells, and within one.


@dataclasses.dataclass
class Cell:
    """A cell.

    Attributes:
        text: `Text`.
        is_figure: Whether its lines stay whole; others are broken between words.
    """

    text: Text
    is_figure: bool

    @property
    def least(self) -> int:
        """The width in which nothing of it is cut."""
        text = self.text.plain
        parts = text.splitlines() if self.is_figure else text.split()
        return max(map(cell_len, parts), default=0)


@dataclasses.dataclass
class Column:
    """A column, or in a table with swapped columns, what was a row.

    Attributes:
        name: String, its heading; may have several lines.
        cells: List of `Cell`.
        is_right: Whether it is right-aligned.
    """

    name: str
    cells: list[Cell]
    is_right: bool

    def least(self, heading: str) -> int:
        """Returns the width in which nothing of it is cut."""
        of_heading = map(cell_len, heading.splitlines())
        return max([*(cell.least for cell in self.cells), *of_heading, 0])

    def most(self, heading: str) -> int:
        """Returns the width of its longest line, up to a limit."""
        texts = [heading, *(cell.text.plain for cell in self.cells)]
        lines = [line for text in texts for line in text.splitlines()]
        longest = max(map(cell_len, lines), default=0)
        return max(min(longest, _WIDEST_TEXT), self.least(heading))


class FittedTable:
    """A table without rows; `rich` prints it in the width that there is.

    Args:
        title: String, a line above the table.
        left: Sequence of headings of left-aligned columns, whose cells are
            broken between words.
        right: Sequence of headings of right-aligned columns, after those.
        caption: String, a line below it. Defaults to `None`.
        has_headings: Whether to print the headings. Defaults to `True`.
    """

    def __init__(
        self,
        title: str,
        left: Sequence[str] = (),
        right: Sequence[str] = (),
        caption: str | None = None,
        has_headings: bool = True,
    ) -> None:
        self.title, self.caption = title, caption
        self.has_headings = has_headings
        self.columns: list[Column] = []
        for name in left:
            self.add_column(name)
        for name in right:
            self.add_column(name, is_right=True)

    def add_column(self, name: str, is_right: bool = False) -> None:
        """Adds a column behind the others, before the first row."""
        self.columns.append(Column(name, [], is_right))

    def add_row(self, *cells: str | Text) -> None:
        """Adds a row; strings are markup of `rich`, `Text` is none."""
        for column, cell in zip(self.columns, cells, strict=True):
            text = cell if isinstance(cell, Text) else Text.from_markup(cell)
            column.cells.append(Cell(text, is_figure=column.is_right))

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        if self.title:
            yield Text(self.title, "table.title", overflow="fold")
        yield from self._tables(options.max_width)
        if self.caption:
            yield Text(self.caption, "table.caption", overflow="fold")

    def _tables(self, width: int) -> Iterator[RenderableType]:
        for narrow in (False, True):
            if _least(self.columns, narrow) <= width:
                yield self._drawn(self.columns, width, narrow)
                return
        choices = [
            (len(groups) * (len(columns[0].cells) + 4), groups)
            for columns in (_swapped(self.columns), self.columns)
            for groups in [_groups(columns, width)]
            if groups
        ]
        if not choices:
            yield from self._lists()
            return
        for group in min(choices, key=lambda choice: choice[0])[1]:
            yield self._drawn(group, width, narrow=True)

    def _drawn(
        self, columns: Sequence[Column], width: int, narrow: bool
    ) -> Table:
        """Returns the columns as a table that is at most as wide."""
        names = [_heading(column, narrow) for column in columns]
        least = [c.least(name) for c, name in zip(columns, names)]
        widths = [c.most(name) for c, name in zip(columns, names)]
        for _ in range(_width(widths) - width):
            spare = [most - few for most, few in zip(widths, least)]
            widths[max(range(len(spare)), key=spare.__getitem__)] -= 1
        table = Table(box=box.HEAVY_HEAD, show_header=self.has_headings)
        for column, name, cells in zip(columns, names, widths):
            table.add_column(
                Text(name),
                justify="right" if column.is_right else "left",
                width=cells,
                overflow="fold",
            )
        for row in zip(*(column.cells for column in columns)):
            table.add_row(*(cell.text for cell in row))
        return table

    def _lists(self) -> Iterator[Text]:
        """Yields a line for each cell, for the narrowest terminals."""
        for row in zip(*(column.cells for column in self.columns)):
            for column, cell in zip(self.columns, row):
                name = _in_a_line(column.name)
                before = f"{name}: " * bool(name and self.has_headings)
                yield Text.assemble(before, cell.text, overflow="fold")
            yield Text("")


def _in_a_line(name: str) -> str:
    return " ".join(name.split())


def _heading(column: Column, narrow: bool) -> str:
    """Returns a heading; a narrow one is broken where its cells are short."""
    if not narrow:
        return column.name
    words = column.name.split()
    room = max([column.least(""), *map(len, words)], default=0)
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def _width(widths: Sequence[int]) -> int:
    """Returns the width of a table with columns of these widths."""
    return sum(width + _PADDING + _BORDER for width in widths) + _BORDER


def _least(columns: Sequence[Column], narrow: bool) -> int:
    return _width([c.least(_heading(c, narrow)) for c in columns])


def _groups(columns: Sequence[Column], width: int) -> list[list[Column]]:
    """Divides columns into groups that fit, each behind the first column.

    Returns:
        List of lists of columns; empty if a column doesn't fit beside the first.
    """
    first, *others = columns
    groups: list[list[Column]] = []
    for column in others:
        if _least([first, column], narrow=True) > width:
            return []
        if groups and _least([*groups[-1], column], narrow=True) <= width:
            groups[-1].append(column)
        else:
            groups.append([first, column])
    return groups


def _swapped(columns: Sequence[Column]) -> list[Column]:
    """Returns the columns of a table with rows and columns swapped."""
    first, *others = columns
    names = [
        Cell(Text(_in_a_line(column.name)), is_figure=False)
        for column in others
    ]
    return [
        Column(_in_a_line(first.name), names, is_right=False),
        *(
            Column(
                name.text.plain,
                [c.cells[number] for c in others],
                is_right=True,
            )
            for number, name in enumerate(first.cells)
        ),
    ]
