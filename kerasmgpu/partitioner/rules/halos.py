"""Windows over an axis that a mesh divides: rows of images, steps of signals.

Each replica computes the windows, or the rows, of its share, from its rows and
a halo of its neighbours'. `window_ranges` says which these are. Paddings and
slices are windows, too, of one row each.
"""

import dataclasses
from collections.abc import Callable, Sequence

from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    LocalSizes,
    MeshAxes,
    Rows,
    Sharded,
    WithHalo,
    is_fixed,
)
from kerasmgpu.partitioner.rules.table import Emit, Plan
from kerasmgpu.partitioner.rules.window_ranges import (
    Makes,
    Range,
    Reach,
    Windows,
)
from kerasmgpu.partitioner.step.graph import (
    Node,
    Tensor,
    constant_array,
    op_definition,
)
from kerasmgpu.partitioner.step.sizes import are_integers


@dataclasses.dataclass(frozen=True)
class OnWindows:
    """A rule for an operation on windows along an axis of fixed shares.

    Attributes:
        makes: What a replica computes of its share.
        rows: Numbers of the inputs that have rows.
        windows: Numbers of the inputs that have an element for each window.
        shape: Number of the input that is the result's shape; `None` without.
        sums: Whether the result is the gradient of a filter.
        emit: How an operation is told the padding of its part.
    """

    makes: Makes
    rows: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    shape: int | None = None
    sums: bool = False
    emit: Emit = Emit.WINDOWS

    def along(self, node: Node, axis: int) -> Windows | None:
        """Returns the windows of an operation along an axis.

        `None` if it has none there, or if a size is unknown.
        """
        raise NotImplementedError

    def __call__(self, node: Node, kinds: Sequence[Kind]) -> Plan | None:
        """Plans an operation; `None` if nothing is divided along windows."""
        for number in (*self.rows, *self.windows):
            kind = kinds[number]
            if is_fixed(kind):
                windows = self.along(node, kind.axis)
                if windows is not None:
                    return self._planned(node, windows, kind)
        return None

    def _planned(self, node: Node, windows: Windows, kind: Sharded) -> Plan:
        axis, over, makes = kind.axis, kind.rows.over, self.makes
        wants: list[Kind] = [REPLICATED] * len(node.inputs)
        of_windows = makes is Makes.WINDOWS
        # Windows of one row each need no rows of neighbours.
        alone = windows == Windows(1, 1, 0, windows.rows, windows.rows)
        size = windows.number if of_windows else windows.rows
        own = kind if alone else _divided(axis, size, over)

        def reached(gives_rows: bool) -> Kind:
            if alone:
                return own
            return WithHalo(axis, own.rows, Reach(windows, makes, gives_rows))

        for number in self.rows:
            wants[number] = reached(gives_rows=True)
        for number in self.windows:
            wants[number] = own if of_windows else reached(gives_rows=False)
        if self.shape is not None:
            wants[self.shape] = LocalSizes(own)
        gives = PARTIAL if self.sums else own
        return Plan(tuple(wants), (gives,), None if alone else self.emit)

    def tensors(self, node: Node) -> tuple[Tensor, Tensor]:
        """Returns the tensor with rows, and the one with windows."""
        inputs, (made, *_) = node.inputs, node.outputs
        if not self.windows:
            return inputs[self.rows[0]], made
        rows = inputs[self.rows[0]] if self.rows else made
        return rows, inputs[self.windows[0]]

    def sizes(self, node: Node, axis: int) -> tuple[int, int] | None:
        """Returns the numbers of rows and windows; `None` without or if unknown."""
        rows, number = (
            one.shape[axis] if one.shape and axis < len(one.shape) else None
            for one in self.tensors(node)
        )
        if not isinstance(rows, int) or not isinstance(number, int):
            return None
        return (rows, number) if rows and number else None


def _divided(axis: int, size: int, over: MeshAxes) -> Sharded:
    return Sharded(axis, Rows(size, are_of_variable=True, over=over))


def halo_of(plan: Plan) -> WithHalo:
    """Returns the kind of an input that a plan wants with a halo."""
    return next(kind for kind in plan.wants if isinstance(kind, WithHalo))


# Convolutions and pools ------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class OnImages(OnWindows):
    """A rule for a convolution, a pool, or a gradient of these.

    Attributes:
        filter: Number of the input that is the filter; `None` for pools, and
            where the result is the gradient of one.
    """

    filter: int | None = None

    def along(self, node: Node, axis: int) -> Windows | None:
        around, sizes = self.paddings(node), self.sizes(node, axis)
        spatial = self._spatial_axes(node)
        if around is None or sizes is None or axis not in spatial:
            return None
        length = self._length(node, axis, axis - spatial[0])
        if length is None:
            return None
        is_same = node.attr("padding") == "SAME"
        pads_itself = is_same and not self.takes_paddings(node)
        step, (before, _) = node.attr("strides")[axis], around[axis]
        return Windows(length, step, before, *sizes, pads_itself)

    def paddings(self, node: Node) -> list[Range] | None:
        """Returns the padding before and behind each axis; `None` if unknown.

        Also if an axis of the images, or the size of a filter, isn't known.
        """
        images, _ = self.tensors(node)
        spatial, padding = self._spatial_axes(node), node.attr("padding")
        if not spatial:
            return None
        if padding == "EXPLICIT":
            flat = node.attr("explicit_paddings")
            return list(zip(flat[::2], flat[1::2]))
        around = [(0, 0)] * len(images.shape)
        for number, axis in enumerate(spatial):
            length, rows = self._length(node, axis, number), images.shape[axis]
            if length is None or not isinstance(rows, int):
                return None
            if padding == "SAME":
                step = node.attr("strides")[axis]
                total = max((-(-rows // step) - 1) * step + length - rows, 0)
                around[axis] = total // 2, total - total // 2
        return around

    def takes_paddings(self, node: Node) -> bool:
        """Whether an operation is given the padding of each axis.

        XLA has no pools that are.
        """
        if self.filter is None and not self.sums:
            return bool(node.attr("padding") == "EXPLICIT")
        names = [one.name for one in op_definition(node.type).attr]
        return "explicit_paddings" in names

    def _spatial_axes(self, node: Node) -> range:
        """Returns the axes of windows: all but those of rows and channels."""
        one, other = self.tensors(node)
        if one.rank is None or one.rank != other.rank:
            return range(0)
        first = 2 if str(node.attr("data_format")).startswith("NC") else 1
        return range(first, first + one.rank - 2)

    def _length(self, node: Node, axis: int, number: int) -> int | None:
        """Returns the length of a window, with holes; `None` if it is unknown.

        Args:
            number: Number of the axis among those of windows.
        """
        if self.filter is None and not self.sums:
            length: int = node.attr("ksize")[axis]
            return length
        one = node.outputs[0] if self.sums else node.inputs[self.filter or 0]
        size = one.shape[number] if one.shape else None
        if not isinstance(size, int):
            return None
        dilations = node.attr("dilations") or [1] * (axis + 1)
        return (size - 1) * int(dilations[axis]) + 1


CONVOLUTION = OnImages(Makes.WINDOWS, rows=(0,), filter=1)
OF_INPUT = OnImages(Makes.ROWS, windows=(2,), shape=0, filter=1)
OF_INPUT_3D = dataclasses.replace(OF_INPUT, makes=Makes.ROWS_OF_WINDOWS)
OF_FILTER = OnImages(Makes.WINDOWS, rows=(0,), windows=(2,), sums=True)
POOL = OnImages(Makes.WINDOWS, rows=(0,))
OF_MAXIMUM = OnImages(Makes.ROWS_OF_WINDOWS, rows=(0,), windows=(1, 2))
OF_AVERAGE = OnImages(Makes.ROWS_OF_WINDOWS, windows=(1,), shape=0)


# Paddings and slices ---------------------------------------------------------

_Moved = tuple[int, int, int]
"""`length`, `step` and `before` of `Windows`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnMoved(OnWindows):
    """A rule for an operation that moves elements along some axes.

    Attributes:
        moved: Function of a node, an axis and its number of rows.
    """

    moved: Callable[[Node, int, int], _Moved | None]

    def along(self, node: Node, axis: int) -> Windows | None:
        sizes = self.sizes(node, axis)
        # Slices of weights, which are divided along any axis, are gathered.
        if sizes is None or axis == 0 or len(node.outputs[0].shape) < 3:
            return None
        found = self.moved(node, axis, sizes[0])
        if found is None or found == (1, 1, 0) and sizes[0] == sizes[1]:
            return None
        return Windows(*found, *sizes)


def _of_padding(node: Node, axis: int, rows: int) -> _Moved | None:
    around = constant_pairs(node.inputs[1])
    return None if around is None else (1, 1, around[axis][0])


def _of_slice(node: Node, axis: int, rows: int) -> _Moved | None:
    begin = node.inputs[1].value
    return (1, 1, -begin[axis]) if are_integers(begin) else None


def _of_strided_slice(node: Node, axis: int, rows: int) -> _Moved | None:
    """Returns the windows of a slice by steps, or of its gradient."""
    begin, end, strides = (node.inputs[n].value for n in (1, 2, 3))
    if not all(map(are_integers, (begin, end, strides))) or axis >= len(begin):
        return None
    up_to = (2 << axis) - 1
    if strides[axis] < 1 or any(
        node.attr(f"{name}_mask") & up_to
        for name in ("ellipsis", "new_axis", "shrink_axis")
    ):
        return None
    first = None if node.attr("begin_mask") >> axis & 1 else begin[axis]
    last = None if node.attr("end_mask") >> axis & 1 else end[axis]
    start, _, step = slice(first, last, strides[axis]).indices(rows)
    return 1, step, -start


def _of_blocks(node: Node, axis: int, rows: int) -> _Moved | None:
    """Returns windows of which each position goes into the first axis."""
    around, block = constant_pairs(node.inputs[2]), node.inputs[1].value
    if around is None or not are_integers(block) or axis > len(block):
        return None
    length = block[axis - 1]
    return length, length, around[axis - 1][0]


def constant_pairs(tensor: Tensor) -> list[Range] | None:
    """Returns a matrix of paddings, or of crops; `None` if it is unknown."""
    if tensor.node.type != "Const":
        return None
    return [(int(b), int(e)) for b, e in constant_array(tensor.node)]


PADDING = OnMoved(
    Makes.WINDOWS, rows=(0,), emit=Emit.WINDOWS_PADDED, moved=_of_padding
)
SLICE = OnMoved(
    Makes.WINDOWS, rows=(0,), shape=2, emit=Emit.WINDOWS_CUT, moved=_of_slice
)
STRIDED_SLICE = OnMoved(
    Makes.WINDOWS,
    rows=(0,),
    emit=Emit.WINDOWS_BY_STEPS,
    moved=_of_strided_slice,
)
OF_STRIDED_SLICE = OnMoved(
    Makes.ROWS,
    windows=(4,),
    shape=0,
    emit=Emit.WINDOWS_BY_STEPS,
    moved=_of_strided_slice,
)
TO_BLOCKS = OnMoved(
    Makes.WINDOWS, rows=(0,), emit=Emit.WINDOWS_PADDED, moved=_of_blocks
)
FROM_BLOCKS = OnMoved(
    Makes.ROWS, windows=(0,), emit=Emit.WINDOWS_PADDED, moved=_of_blocks
)
