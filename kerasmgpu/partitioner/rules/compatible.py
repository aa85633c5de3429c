"""Which plans of one operation on several axes of a mesh go together.

Each axis is planned by itself. An operation that is written as it is runs on
values that are divided along any number of axes: what it computes from its part
along one doesn't depend on the others. Exceptions are operations that are not just
copied, and a tensor's axis. That is divided along one mesh axis, or along several
if they are nested (`are_nested`).
"""

from collections.abc import Iterator, Sequence
from typing import cast

from kerasmgpu.partitioner.rules.kinds import (
    Kept,
    Kind,
    LocalSizes,
    Owned,
    Sharded,
    WithHalo,
    is_local,
)
from kerasmgpu.partitioner.rules.table import ON_WINDOWS, Emit, Plan
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.sizes import SizeLike

_MEANS = (Emit.LOCAL_MEAN,)
"""Written for one axis after the other."""

_OF_ROWS = (Emit.LOOK_UP_OWN, Emit.UPDATE_OWN, Emit.UPDATE_OWNED, Emit.SUM_OWN)
"""On the rows of a table; its other axes, and numbers of rows, can be divided."""


def fits(plan: Plan, others: Sequence[Plan]) -> bool:
    """Whether an operation's plan goes with its plans on other mesh axes."""
    return all(_go_together(plan, other) for other in others)


def divides_one_axis(kind: Kind | None, others: Sequence[Kind]) -> bool:
    """Whether a kind divides an axis of a tensor that others divide, too."""
    axis = None if kind is None else _axis(kind)
    return axis is not None and axis in map(_axis, others)


def _go_together(one: Plan, other: Plan) -> bool:
    if not (one.is_local or one.sliced) or not (other.is_local or other.sliced):
        return True
    for own, its in zip(_kinds(one), _kinds(other)):
        if isinstance(own, Kept) and is_local(its):
            return False
        if isinstance(its, Kept) and is_local(own):
            return False
        is_one_axis = _axis(own) is not None and _axis(own) == _axis(its)
        if is_one_axis and not are_nested(own, its):
            return False
    emits = {one.emit, other.emit}
    if emits <= {None, Emit.IDENTITY, Emit.WHOLE_SHAPE, *_MEANS}:
        return True
    if emits <= {None, *ON_WINDOWS}:
        return True
    return None in emits and emits <= {None, *_OF_ROWS}


def are_nested(one: Kind, other: Kind) -> bool:
    """Whether two kinds divide one axis, one of them the other's blocks.

    After a reshape from `[rows, tokens, units]` to `[rows * tokens, units]`, a
    mesh axis that divides rows and one that divides tokens do.
    """
    if isinstance(one, LocalSizes) and isinstance(other, LocalSizes):
        one, other = one.sharded, other.sharded
    return (
        type(one) is type(other) is Sharded
        and one.rows.over != other.rows.over
        and (is_outside(one, other) or is_outside(other, one))
    )


def is_outside(one: Sharded, other: Sharded) -> bool:
    """Whether the blocks of `other` are inside the rows of `one`."""
    outer = sizes.product([one.outer, one.rows.size])
    return sizes.divide(other.outer, outer) not in (None, 0)


def undivided(kinds: Sequence[Sharded]) -> SizeLike:
    """Returns the elements of an axis per row of each of the kinds that divide it."""
    size: SizeLike | None = kinds[0].size
    for kind in kinds:
        size = sizes.divide(size, kind.rows.size)
    return cast(SizeLike, size)


def _kinds(plan: Plan) -> Iterator[Kind]:
    """Yields the kinds of inputs and outputs, sliced ones as they will be."""
    yield from plan.wants
    for number, kind in enumerate(plan.gives):
        yield plan.sliced.get(number, kind)


def _axis(kind: Kind) -> int | None:
    """Returns the tensor's axis that a kind divides, or `None`."""
    if isinstance(kind, LocalSizes):
        kind = kind.sharded
    if isinstance(kind, Owned):
        return 0  # Of the table's rows.
    return kind.axis if isinstance(kind, (Sharded, WithHalo)) else None
