"""Writes slices of an axis, and halos: rows that neighbours send."""

from collections.abc import Sequence

from kerasmgpu.partitioner.ir.instructions import Value, alike
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.function_writer import Function, References
from kerasmgpu.partitioner.lowering.packing import padded
from kerasmgpu.partitioner.rules.kinds import Rows, Sharded, WithHalo
from kerasmgpu.partitioner.rules.window_ranges import Range
from kerasmgpu.partitioner.step.references import Reference


def sliced(
    build: Function,
    reference: Reference,
    axis: int,
    start: Reference,
    count: Reference,
) -> Reference:
    """Slices `count` elements of an axis, from `start`, on the value's device."""
    end = build.sizes.plus(start, count)
    zero = build.sizes.scalar(0)
    bounds = [
        build.sizes.packed([zero] * axis + [bound]) for bound in (start, end)
    ]
    bounds.append(build.constant([1] * (axis + 1)))
    in_front = (1 << axis) - 1  # Axes before it are taken wholly.
    return build.strided_slice(
        reference,
        bounds,
        build.place_of(reference),
        begin_mask=in_front,
        end_mask=in_front,
    )


def cut(
    build: Function, reference: Reference, axis: int, wanted: Range
) -> Reference:
    """Slices a fixed range of an axis."""
    start, end = map(build.sizes.scalar, (wanted[0], wanted[1] - wanted[0]))
    return sliced(build, reference, axis, start, end)


def sent(
    build: Build,
    one: Value,
    kind: Sharded | WithHalo,
    parts: Sequence[Reference],
) -> list[Reference]:
    """Joins the rows that each replica wants, from the replicas that have them.

    Args:
        one: The value as it is sharded.
        kind: How it is wanted.
        parts: References to `one`, by replica.
    """
    mesh, axis = build.mesh, kind.axis
    held, wanted = mesh.ranges(one.sharded), mesh.ranges(kind)
    edges = None
    if mesh.num_workers > 1:
        edges = _Edges(build, one, parts, held, wanted)
    first, over, made = mesh.first_along(kind.rows.over), kind.rows.over, []
    for place in range(mesh.num):
        own, pieces = mesh.index(place, over), []
        for owner, (start, end) in enumerate(held):
            common = _common(wanted[own], (start, end))
            if common[0] >= common[1]:
                continue
            if edges is not None and owner != own:
                piece = edges.rows(owner, common, is_tail=owner < own)
                pieces.append(cut(build, edges.whole[place], axis, piece))
                continue
            part = parts[owner - first]
            if common != (start, end):
                piece = common[0] - start, common[1] - start
                part = cut(build, part, axis, piece)
            pieces.append(part)
        if not pieces:  # A share without rows.
            pieces.append(cut(build, parts[own - first], axis, (0, 0)))
        made.append(build.concat(pieces, axis, place))
    return made


class _Edges:
    """The rows at the edges of all replicas' parts, gathered between workers.

    Each replica sends as many rows of its first ones, and of its last ones, as
    any replica's neighbours want; it pads what it doesn't have.

    Args:
        held: Which elements of the axis each replica holds.
        wanted: Which it wants.

    Attributes:
        whole: References to the gathered edges, by replica.
    """

    def __init__(
        self,
        build: Build,
        one: Value,
        parts: Sequence[Reference],
        held: Sequence[Range],
        wanted: Sequence[Range],
    ) -> None:
        self._held = held
        common = [
            (owner, other, _common(wanted[other], held[owner]))
            for owner in range(len(held))
            for other in range(len(held))
        ]
        common = [one for one in common if one[2][0] < one[2][1]]
        self._head = max(
            (its[1] - held[n][0] for n, other, its in common if other < n),
            default=0,
        )
        self._tail = max(
            (held[n][1] - its[0] for n, other, its in common if other > n),
            default=0,
        )
        self._rows = self._head + self._tail
        self.whole: References = parts
        if self._rows:
            self.whole = self._gathered(build, one, parts)

    def _gathered(
        self, build: Build, one: Value, parts: Sequence[Reference]
    ) -> References:
        sharded, axis = one.sharded, one.sharded.axis
        tensor, over = alike(one.tensor), sharded.rows.over
        shape = list(one.tensor.shape or ())
        shape[axis] = self._rows * len(self._held)
        tensor.shape = tuple(shape)
        rows = Rows(shape[axis], are_of_variable=True, over=over)
        edges = Value(tensor, (Sharded(axis, rows),))
        sent = []
        for place, part in enumerate(parts):
            start, end = self._held[build.mesh.index(place, over)]
            head = min(end - start, self._head)
            tail = min(end - start, self._tail)
            widths = [0] * (2 * len(shape))
            # Between them is padding, if there are fewer rows.
            widths[2 * axis + 1] = self._head - head
            first = _padded(build, cut(build, part, axis, (0, head)), widths)
            widths[2 * axis : 2 * axis + 2] = self._tail - tail, 0
            number = end - start
            last = cut(build, part, axis, (number - tail, number))
            last = _padded(build, last, widths)
            sent.append(build.concat([first, last], axis, place))
        return build.replicas.gather(build, edges, sent)

    def rows(self, owner: int, rows: Range, is_tail: bool) -> Range:
        """Returns where some rows of an owner are in the gathered edges."""
        first = owner * self._rows
        start, end = self._held[owner]
        offset = first + self._rows - end if is_tail else first - start
        return rows[0] + offset, rows[1] + offset


def _common(one: Range, other: Range) -> Range:
    return max(one[0], other[0]), min(one[1], other[1])


def _padded(
    build: Function, reference: Reference, widths: Sequence[int]
) -> Reference:
    return padded(build, reference, list(map(build.sizes.scalar, widths)))
