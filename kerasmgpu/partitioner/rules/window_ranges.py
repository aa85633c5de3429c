"""Which rows of an axis, and which windows over them, a replica computes with.

A convolution, a pool or a padding makes one row for each window of its input's
rows. If replicas share rows, some of a replica's windows reach over rows of its
neighbours, the halo. Ranges are static: `(start, end)`.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import NamedTuple

Range = tuple[int, int]


class Makes(enum.Enum):
    """What a replica computes of its share."""

    WINDOWS = "windows"
    """One result for each window of the share: the forward pass, and gradients
    by the filter."""
    ROWS = "rows"
    """The share's rows, as the sums of what is in windows: gradients by the
    input."""
    ROWS_OF_WINDOWS = "rows of windows"
    """The same from all rows of these windows: gradients of pools."""


class Part(NamedTuple):
    """The part of an operation that a replica computes.

    It can be more than the replica's share, of which there is always a row.

    Attributes:
        rows: Its rows.
        windows: Its windows.
        padding: Rows of padding before and behind the rows.
    """

    rows: Range
    windows: Range
    padding: tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Windows:
    """The windows of an operation along one axis.

    Attributes:
        length: Rows from a window's first to behind its last, with the holes of
            a dilation.
        step: Rows from a window to the next.
        before: Rows of padding before the first row; rows that are cut off, if
            negative.
        rows: Number of rows.
        number: Number of windows.
        pads_itself: Whether the kernel computes the padding from the number of
            rows, as TensorFlow's `SAME`, and can't be given another one.
    """

    length: int
    step: int
    before: int
    rows: int
    number: int
    pads_itself: bool = False

    def part(self, share: Range, makes: Makes) -> Part:
        """Returns the part by which a replica computes a share.

        Args:
            share: Range of windows, or of rows; see `Makes`.
        """
        if makes is Makes.WINDOWS:
            windows = _not_empty(share, self.number)
            rows = self._rows_of(windows)
            if rows[0] >= rows[1]:  # Only padding: up to the nearest row.
                near = self._windows_of(
                    (0, 1) if rows[1] <= 0 else (self.rows - 1, self.rows)
                )
                windows = _hull(windows, near)
                rows = self._rows_of(windows)
        else:
            own = _not_empty(share, self.rows)
            over_own = self._windows_of(own)
            windows = _not_empty(over_own, self.number)
            first = windows[0]
            if own[0] < self._start(first) and first > 0:
                windows = first - 1, windows[1]
            rows = _hull(own, self._rows_of(windows))
            trims = makes is Makes.ROWS and not self.pads_itself
            if trims and windows == over_own:
                # Their other rows aren't needed.
                rows = own
        if self.pads_itself:
            rows = self._padded_alike(rows)
            first = rows[0] // self.step
            windows = first, first + -(-(rows[1] - rows[0]) // self.step)
        before = rows[0] - self._start(windows[0])
        behind = self._end(windows[1] - 1) - rows[1]
        return Part(rows, windows, (before, max(behind, 0)))

    def _start(self, window: int) -> int:
        return window * self.step - self.before

    def _end(self, window: int) -> int:
        return self._start(window) + self.length

    def _rows_of(self, windows: Range) -> Range:
        """Returns the rows that windows reach over."""
        start, end = self._start(windows[0]), self._end(windows[1] - 1)
        return max(start, 0), min(end, self.rows)

    def _windows_of(self, rows: Range) -> Range:
        """Returns the windows that reach over some of the rows."""
        first = -(-(rows[0] + self.before - self.length + 1) // self.step)
        last = (rows[1] - 1 + self.before) // self.step
        return max(first, 0), min(last + 1, self.number)

    def _padded_alike(self, rows: Range) -> Range:
        """Returns a range around rows that kernels pad as they pad all rows.

        It starts with a step, and as many rows as of all are left over at its
        end: windows are at the same places, and so is the padding.
        """
        start = rows[0] // self.step * self.step
        end = rows[1] + (self.rows - rows[1] + start) % self.step
        return start, min(end, self.rows)


def _not_empty(share: Range, number: int) -> Range:
    """Returns a share, or one element near it if it is empty."""
    start, end = share
    if start < end:
        return share
    start = min(start, number - 1)
    return start, start + 1


def _hull(one: Range, other: Range) -> Range:
    return min(one[0], other[0]), max(one[1], other[1])


@dataclasses.dataclass(frozen=True)
class Reach:
    """The rows, or windows, of the part by which a replica computes a share.

    Attributes:
        gives_rows: Whether it is the part's rows, instead of its windows.
    """

    windows: Windows
    makes: Makes
    gives_rows: bool

    def of(self, share: Range) -> Range:
        """Returns the range for a replica's share."""
        part = self.windows.part(share, self.makes)
        return part.rows if self.gives_rows else part.windows


def moved(held: Sequence[Range], wanted: Sequence[Range]) -> int:
    """Returns how many elements replicas want that they don't hold, in all."""
    return sum(
        end - start - max(min(end, its_end) - max(start, its_start), 0)
        for (its_start, its_end), (start, end) in zip(held, wanted)
    )
