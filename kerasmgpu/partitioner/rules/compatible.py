"""Which plans of one operation on several axes of a mesh go together.

Each axis is planned by itself. An operation that is written as it is runs on
values that are divided along any number of axes: what it computes from its part
along one doesn't depend on the others. Exceptions are a tensor's axis, which is
divided along one mesh axis at most, and operations that are not just copied.
"""

from collections.abc import Iterator, Sequence

from kerasmgpu.partitioner.rules.kinds import (
    Kept,
    Kind,
    LocalSizes,
    Owned,
    Sharded,
    is_local,
)
from kerasmgpu.partitioner.rules.table import Emit, Plan

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
        if _axis(own) is not None and _axis(own) == _axis(its):
            return False
    emits = {one.emit, other.emit}
    if emits <= {None, Emit.IDENTITY, Emit.WHOLE_SHAPE, *_MEANS}:
        return True
    return None in emits and emits <= {None, *_OF_ROWS}


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
    return kind.axis if isinstance(kind, Sharded) else None
