"""The search finds what trying every layout finds, and keeps its bound."""

import itertools

from kerasmgpu.strategies.layout_search import Cost, Group, Search

UP, DOWN, SCALE = (8, 32), (32, 8), (4,)
SHAPES = (UP, DOWN, UP, DOWN, SCALE)
BYTES = (1024, 1024, 1024, 1024, 16)
FLOPS = 40_000.0


def cost(layout, size=4):
    """Two blocks, of columns and then rows: what a layout costs along one axis.

    Products are divided along any axis. A block sends its activations once, if
    columns come before rows, and otherwise four times as often.
    """
    axes = [own[0] for own in layout]
    flops, sent, held = 0.0, 0.0, 0
    for up, down in (axes[:2], axes[2:4]):
        flops += FLOPS * sum(1 if a is None else 1 / size for a in (up, down))
        pair_is_whole = up is None and down is None
        sent += 0 if pair_is_whole else 100 if (up, down) == (1, 0) else 400
    for axis, shape, each in zip(axes, SHAPES, BYTES):
        held += (
            each
            if axis is None
            else each * -(-shape[axis] // size) // (shape[axis])
        )
    return Cost(flops, FLOPS, sent, held)


GROUPS = (
    Group((0, 2), UP, 2048, "block"),
    Group((1, 3), DOWN, 2048, "block"),
    Group((4,), SCALE, 16),
)
WHOLE = ((None,),) * 5


def test_it_finds_what_trying_all_layouts_finds():
    search = Search((4,), None, GROUPS, cost)
    found = search.run([WHOLE], None)
    options = [(None, *range(len(shape))) for shape in SHAPES]
    best = min(
        cost(tuple((axis,) for axis in axes)).total()
        for axes in itertools.product(*options)
    )
    assert cost(found).total() == best
    assert found[:4] == ((1,), (0,), (1,), (0,))


def test_axes_that_are_too_short_stay_whole():
    def tells(layout):
        assert layout[4] == (None,)
        return cost(layout, 5)

    Search((5,), None, GROUPS, tells).run([WHOLE], None)


def of_rows(layout):
    """Along the axis of the rows: each divided variable is gathered."""
    sent = held = 0
    for own, each in zip(layout, BYTES):
        share = 1.0
        for axis, size in zip(own, (2, 4)):
            share /= 1 if axis is None else size
        sent += 0 if own[0] is None else 2 * each
        held += int(each * share)
    return Cost(FLOPS, FLOPS, sent, held)


def test_the_rows_axis_divides_only_what_does_not_fit():
    search = Search((2, 4), 0, GROUPS, of_rows)
    whole = ((None, None),) * 5
    free = search.run([whole], None)
    assert {axes[0] for axes in free} == {None}
    bound = of_rows(free).held * 3 // 4
    bounded = search.run([whole], bound)
    assert of_rows(bounded).held <= bound
    assert 0 < sum(axes[0] is not None for axes in bounded)


def test_what_can_not_fit_ends_with_the_layout_that_holds_least():
    search = Search((2, 4), 0, GROUPS, of_rows)
    found = search.run([((None, None),) * 5], 1)
    assert of_rows(found).held == sum(BYTES[:4]) // 8 + BYTES[4] // 4


def test_a_start_is_never_made_worse():
    """A layout that no single move leads to, or away from."""
    far = tuple((0,) if len(shape) > 1 else (None,) for shape in SHAPES)

    def only_far(layout):
        return Cost(FLOPS, FLOPS, 0 if layout == far else 1000, 0)

    assert Search((4,), None, GROUPS, only_far).run([WHOLE, far], None) == far
