"""Which rows and windows each replica computes with, against a slow search."""

import itertools

import pytest

from kerasmgpu.partitioner.rules.window_ranges import (
    Makes,
    Windows,
    moved,
)
from kerasmgpu.replica_arithmetic import bounds_of

WINDOWS = [
    Windows(length, step, before, rows, number, pads_itself=False)
    for length, step, before, rows in itertools.product(
        (1, 2, 3, 5), (1, 2, 3), (0, 1, 2, 7), (1, 4, 9, 10)
    )
    # As many windows as reach over a row, or as few as leave some rows out.
    for number in {(rows + before - 1) // step + 1, max(rows // step, 1)}
    if before < length or step == length == 1 and number > before
]


def same_padding(length, step, rows):
    """TensorFlow's `SAME`."""
    number = -(-rows // step)
    total = max((number - 1) * step + length - rows, 0)
    return Windows(length, step, total // 2, rows, number, pads_itself=True)


SAME = [
    same_padding(length, step, rows)
    for length, step, rows in itertools.product(
        (1, 2, 3, 4), (1, 2, 3), (3, 7, 8, 13)
    )
]


def rows_under(windows, number):
    """The rows that a window reaches over."""
    start = number * windows.step - windows.before
    return set(range(start, start + windows.length)) & set(range(windows.rows))


def shares(size):
    for parts in (2, 3, 5):
        bounds = bounds_of(size, parts)
        yield from zip(bounds, bounds[1:])


@pytest.mark.parametrize("kind", ["given", "same"])
def test_a_part_has_the_rows_under_its_share_of_windows(kind):
    for windows in WINDOWS if kind == "given" else SAME:
        for share in shares(windows.number):
            part = windows.part(share, Makes.WINDOWS)
            assert part.rows[0] < part.rows[1]
            assert part.windows[0] <= share[0] <= share[1] <= part.windows[1]
            for number in range(*share):
                assert rows_under(windows, number) <= set(range(*part.rows))
            check_place(windows, part)


@pytest.mark.parametrize("makes", [Makes.ROWS, Makes.ROWS_OF_WINDOWS])
@pytest.mark.parametrize("kind", ["given", "same"])
def test_a_part_has_all_windows_over_its_share_of_rows(makes, kind):
    for windows in WINDOWS if kind == "given" else SAME:
        for share in shares(windows.rows):
            part = windows.part(share, makes)
            assert part.windows[0] < part.windows[1]
            assert part.rows[0] <= share[0] <= share[1] <= part.rows[1]
            for number in range(windows.number):
                rows = rows_under(windows, number)
                if rows & set(range(*share)):
                    assert number in range(*part.windows)
                    if makes is Makes.ROWS_OF_WINDOWS:
                        assert rows <= set(range(*part.rows))
            check_place(windows, part)


def check_place(windows, part):
    """A kernel that gets the part's rows and padding has the part's windows."""
    rows, number = (end - start for start, end in part[:2])
    before, behind = part.padding
    if windows.pads_itself:
        alone = same_padding(windows.length, windows.step, rows)
        assert (number, windows.before) == (alone.number, alone.before)
        assert part.rows[0] == part.windows[0] * windows.step
    else:
        first = part.windows[0] * windows.step - windows.before
        assert part.rows[0] - before == first
        if before >= 0:
            longest = rows + before + behind - windows.length
            assert longest // windows.step + 1 >= number


def test_rows_that_are_moved_are_those_that_a_replica_lacks():
    held = [(0, 4), (4, 7)]
    assert moved(held, held) == 0
    assert moved(held, [(0, 5), (3, 7)]) == 2
    assert moved(held, [(0, 2), (0, 4)]) == 4
