"""Operations that reshape, join, slice or repeat axes."""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from kerasmgpu.partitioner.rules import halos, integers
from kerasmgpu.partitioner.rules.elementwise import broadcast_labels
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    LocalSizes,
    Rows,
    Sharded,
    is_fixed,
)
from kerasmgpu.partitioner.rules.notation import axes
from kerasmgpu.partitioner.rules.table import (
    Axes,
    Labels,
    Plan,
    all_but,
    shape_of_input,
)
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor, constant_array
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape, SizeLike, Value

Taken: TypeAlias = tuple[int | None, str, sizes.SizeLike | None]
"""`(axis, what, size)`; see `sliced_axes`."""

Bound: TypeAlias = tuple[sizes.SizeLike | None] | None
"""A slice's bound: `(size,)`, or `(None,)` if unknown; `None` for no bound."""


def _moving(*types: str, traits: Collection[Trait] = (), **rules: Any) -> None:
    """Declares operations that move elements: all of them are cheap."""
    operation(*types, traits={Trait.CHEAP, Trait.MOVES, *traits}, **rules)


# Reshaping -------------------------------------------------------------------


def reshape(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a reshape; rows stay sharded if they aren't mixed with other axes.

    A partial sum stays one. Returns `None` if rows are mixed with other axes,
    and for other kinds.
    """
    kind = kinds[0]
    if kind == PARTIAL:
        return Plan((PARTIAL, REPLICATED), (PARTIAL,))
    if not isinstance(kind, Sharded):
        return None
    moved = moved_axis(node, kind)
    if moved is None and is_fixed(kind):
        kind = divided_anew(node, kind)
        moved = moved_axis(node, kind)
    if moved is None:
        return None
    wanted = LocalSizes(moved, may_infer=True, shape=node.outputs[0].shape)
    return Plan((kind, wanted), (moved,))


def reshape_shape(node: Node) -> list[Shape | None] | None:
    """Returns the target shape, with -1 inferred; `None` if unknown."""
    target = node.inputs[1].value
    if not isinstance(target, tuple) or None in target:
        return None
    if -1 not in target:
        return [target]
    total = node.inputs[0].num_elements
    rest = sizes.product(size for size in target if size != -1)
    missing = None if rest == 0 else sizes.divide(total, rest)
    return [tuple(missing if size == -1 else size for size in target)]


_moving("Reshape", plan=reshape, shape=reshape_shape, value=integers.reshape)


def expand_or_squeeze(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans an insertion or a removal of axes of size 1; rows stay sharded.

    A partial sum stays one. Returns `None` for other kinds, if the rows' axis
    is removed, if the axes are unknown, or if a `Squeeze` names none.
    """
    kind, source = kinds[0], node.inputs[0].shape
    rest = (REPLICATED,) * (len(kinds) - 1)
    if kind == PARTIAL:
        return Plan((PARTIAL, *rest), (PARTIAL,))
    if not isinstance(kind, Sharded) or source is None:
        return None
    if node.type == "Squeeze":
        squeezed = {n % len(source) for n in node.attr("squeeze_dims") or ()}
        # Without named axes, a share of one row would lose the rows' axis. A
        # named rows' axis has one row in all, and some shares have none.
        if not squeezed or kind.axis in squeezed:
            return None
        axis = kind.axis - sum(n < kind.axis for n in squeezed)
    else:
        where = sizes.as_scalar(node.inputs[1].value)
        if not isinstance(where, int):
            return None
        axis = kind.axis + (where % (len(source) + 1) <= kind.axis)
    return Plan((kind, *rest), (kind.at(axis),))


def moved_axis(node: Node, kind: Sharded) -> Sharded | None:
    """Returns the sharding after a reshape; `None` if rows don't stay separate.

    The elements of `[…, outer * rows * inner, …]` are in the order of the axes.
    Rows stay separate if the new shape has this form, too, with as many
    elements in front of the rows, and behind them, as before.
    """
    before, after = node.inputs[0].shape, node.outputs[0].shape
    if before is None or after is None:
        return None
    front = sizes.product([*before[: kind.axis], kind.outer])
    behind = sizes.product([kind.inner, *before[kind.axis + 1 :]])
    for axis, size in enumerate(after):
        outer = sizes.divide(front, sizes.product(after[:axis]))
        inner = sizes.divide(behind, sizes.product(after[axis + 1 :]))
        if outer is None or inner is None:
            continue
        moved = Sharded(axis, kind.rows, outer, inner)
        if moved.size == size:
            return moved
    return None


def divided_anew(node: Node, kind: Sharded) -> Sharded:
    """Returns other shares of an axis that a reshape splits: by its first part.

    Neighbours send each other rows then: of `[rows, 30, units]` a device has 15,
    and of `[rows, 15, 2, units]` twice 8 or 7. Returns `kind` where the axis isn't
    split, and for the first and the last one: these are rows, and units.
    """
    before, after = node.inputs[0].shape, node.outputs[0].shape
    if before is None or after is None or kind.inner != 1:
        return kind
    if not 0 < kind.axis < len(before) - 1:
        return kind
    front = sizes.product(before[: kind.axis])
    for axis, size in enumerate(after):
        inner = sizes.divide(kind.rows.size, size)
        if size != 1 and sizes.product(after[:axis]) == front and inner:
            rows = Rows(size, are_of_variable=True, over=kind.rows.over)
            return Sharded(kind.axis, rows, 1, inner)
    return kind


def expand_dims_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape with a new axis of size 1; `None` if unknown."""
    source = node.inputs[0].shape
    axis = sizes.as_scalar(node.inputs[1].value)
    if source is None or not isinstance(axis, int):
        return None
    axis %= len(source) + 1
    return [(*source[:axis], 1, *source[axis:])]


_moving(
    "ExpandDims",
    plan=expand_or_squeeze,
    shape=expand_dims_shape,
    value=integers.reshape,
)


def squeeze_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape without the squeezed axes; `None` if unknown."""
    source, squeezed = node.inputs[0].shape, node.attr("squeeze_dims")
    if source is None or not squeezed:
        return None
    squeezed = {axis % len(source) for axis in squeezed}
    return [tuple(s for n, s in enumerate(source) if n not in squeezed)]


_moving(
    "Squeeze",
    plan=expand_or_squeeze,
    shape=squeeze_shape,
    value=integers.reshape,
)


def transpose(node: Node) -> Axes | None:
    """Returns a permutation's axes; all can be sharded. `None` if unknown."""
    order = node.inputs[1].value
    if not sizes.are_integers(order):
        return None
    rank = len(order)
    labels = tuple(range(rank))
    return Axes(
        (labels, None), (tuple(axis % rank for axis in order),), linear=(0,)
    )


_moving("Transpose", axes=transpose)

operation("ConjugateTranspose", axes=transpose)


# Joining and cutting ---------------------------------------------------------


def concat(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a concatenation of partial sums, or of tensors sharded by rows.

    Along the sharded axis, all parts must be sharded: their blocks follow one
    another (`Sharded.outer` counts them), and a replica holds its rows of each.
    Returns `None` for other kinds, or if the axis or rank is unknown.
    """
    *parts, where = node.inputs
    rank = node.outputs[0].rank
    if rank is None or not isinstance(where.value, int):
        return None
    axis = where.value % rank
    kinds = kinds[:-1]
    if all(kind == PARTIAL for kind in kinds):
        return Plan((*kinds, REPLICATED), (PARTIAL,))
    sharded = [kind for kind in kinds if isinstance(kind, Sharded)]
    if not sharded:
        return None
    first = sharded[0]
    if first.axis != axis:
        return Plan((first,) * len(parts) + (REPLICATED,), (first,))
    # Joined along the rows' axis, each part is a block of all rows.
    if len(sharded) != len(parts) or any(
        kind.in_blocks(1) != first.in_blocks(1) for kind in sharded
    ):
        return None
    given = first.in_blocks(sum(kind.outer for kind in sharded))
    return Plan((*sharded, REPLICATED), (given,))


def concat_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape; sizes on the joined axis add up. `None` if unknown."""
    *parts, where = node.inputs
    shapes = [part.shape for part in parts]
    if None in shapes or not isinstance(where.value, int):
        return None
    axis = where.value % len(shapes[0])
    result = _most_known(shapes)
    result[axis] = sizes.sum_of(one[axis] for one in shapes)
    return [tuple(result)]


_moving("ConcatV2", plan=concat, shape=concat_shape, value=integers.concat)


def _most_known(shapes: Sequence[Shape]) -> list[SizeLike | None]:
    """Merges shapes: for each axis the first number, else the first shape's."""
    return [
        next((size for size in axis if isinstance(size, int)), axis[0])
        for axis in zip(*shapes)
    ]


def pack(node: Node) -> Axes | None:
    """Returns a stack's axes; the new axis is whole. `None` if unknown."""
    shapes = [tensor.shape for tensor in node.inputs]
    if None in shapes:
        return None
    rank = len(shapes[0]) + 1
    axis = node.attr("axis") % rank
    labels = tuple(range(rank - 1))
    out = (*labels[:axis], None, *labels[axis:])
    return Axes((labels,) * len(shapes), (out,))


def pack_partial(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans to pack partial sums into a partial sum; `None` for other kinds."""
    if kinds and all(kind == PARTIAL for kind in kinds):
        return Plan(tuple(kinds), (PARTIAL,))
    return None


def pack_shape(node: Node) -> list[Shape | None] | None:
    """Returns the inputs' shape with a new axis; `None` if it is unknown."""
    shapes = [tensor.shape for tensor in node.inputs]
    if None in shapes:
        return None
    rank = len(shapes[0]) + 1
    axis = node.attr("axis") % rank
    one = _most_known(shapes)
    return [(*one[:axis], len(shapes), *one[axis:])]


_moving(
    "Pack", axes=pack, plan=pack_partial, shape=pack_shape, value=integers.pack
)


def unpack(node: Node) -> Axes | None:
    """Returns an unstack's axes; its axis must be whole. `None` if unknown."""
    labels = all_but(node.inputs[0], node.attr("axis"))
    if labels is None:
        return None
    out = tuple(label for label in labels if label is not None)
    return Axes((labels,), (out,) * len(node.outputs), linear=(0,))


_moving(
    "Unpack", axes=unpack, value=integers.unpack, traits={Trait.SEVERAL_VALUES}
)


def split(node: Node) -> Axes | None:
    """Returns axes of `(axis, value)`; the split axis must be whole."""
    where, value = node.inputs
    return _cut(node, value, where.value, (None,), ())


def split_v(node: Node) -> Axes | None:
    """Returns axes of `(value, sizes, axis)`; the split axis must be whole."""
    value, _, where = node.inputs
    return _cut(node, value, where.value, (), (None, None))


_moving("SplitV", axes=split_v)


def _cut(
    node: Node,
    value: Tensor,
    axis: object,
    before: tuple[None, ...],
    behind: tuple[None, ...],
) -> Axes | None:
    """Returns the axes of a split; the split axis must be whole.

    `before` and `behind` are the labels of the inputs before and behind
    `value`. Returns `None` if the axis is unknown.
    """
    labels = all_but(value, axis)
    if labels is None:
        return None
    return Axes(
        (*before, labels, *behind),
        (labels,) * len(node.outputs),
        linear=(len(before),),
    )


def split_blocks(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a split, `(axis, value)`, of an axis of several blocks of all rows.

    Each part gets whole blocks. Returns `None` if the axis isn't that of the
    rows, or its blocks can't be divided equally.
    """
    axis, kind = node.inputs[0].value, kinds[1]
    if not isinstance(kind, Sharded) or not isinstance(axis, int):
        return None
    if axis % len(node.inputs[1].shape) != kind.axis:
        return None
    outer = sizes.divide(kind.outer, len(node.outputs))
    if outer is None:
        return None
    return Plan(
        (REPLICATED, kind), (kind.in_blocks(outer),) * len(node.outputs)
    )


def split_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape of each equal part; `None` if it is unknown."""
    where, value = node.inputs
    if value.shape is None or not isinstance(where.value, int):
        return None
    axis = where.value % len(value.shape)
    count = len(node.outputs)
    part = sizes.divide(value.shape[axis], count)
    one = (*value.shape[:axis], part, *value.shape[axis + 1 :])
    return [one] * count


_moving(
    "Split",
    axes=split,
    plan=split_blocks,
    shape=split_shape,
    value=integers.split,
    traits={Trait.SEVERAL_VALUES},
)


# Taking parts ----------------------------------------------------------------


def slice_(node: Node) -> Axes | None:
    """Returns the axes of a slice, `(value, begin, size)`.

    Axes that are taken whole can be sharded. Returns `None` if an input is
    unknown.
    """
    value, begin, size = node.inputs
    if value.shape is None or not isinstance(begin.value, tuple):
        return None
    if not isinstance(size.value, tuple):
        return None
    labels = tuple(
        n if b == 0 and s in (-1, whole) else None
        for n, (b, s, whole) in enumerate(
            zip(begin.value, size.value, value.shape)
        )
    )
    return Axes((labels, None, None), (labels,), sizes={2: 0}, linear=(0,))


def slice_shape(node: Node) -> list[Shape | None] | None:
    """Returns the value of `size`, with -1 inferred; `None` if unknown."""
    value, begin, size = node.inputs
    if value.shape is None or not isinstance(size.value, tuple):
        return None
    begins = begin.value
    if not isinstance(begins, tuple):
        begins = (None,) * len(value.shape)
    return [
        tuple(
            (None if b is None or w is None else w - b) if s == -1 else s
            for s, b, w in zip(size.value, begins, value.shape)
        )
    ]


_moving(
    "Slice",
    axes=slice_,
    plan=halos.SLICE,
    shape=slice_shape,
    value=integers.slice_,
)


def sliced_axes(node: Node, shape: Shape | None) -> list[Taken] | None:
    """Describes the axes of a `StridedSlice`'s result, and those it removes.

    Returns:
        List of `(axis, what, size)` in the order of the result's axes. `axis`
        is the value's, or `None` for a new one; `what` is `"whole"`, `"part"`,
        `"one"` (the axis is removed) or `"new"`; `size` is that of the slice,
        `None` if unknown. `None` instead of the list if the axes are unknown.
    """
    begin, end, strides = (node.inputs[n].value for n in (1, 2, 3))
    first = node.inputs[1].shape
    if shape is None or first is None or not isinstance(first[0], int):
        return None
    count = first[0]
    masks = {
        name: node.attr(f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    new = sum(
        1
        for n in range(count)
        if masks["new_axis"] >> n & 1 and not masks["ellipsis"] >> n & 1
    )
    rest = len(shape) - (count - new)
    result: list[Taken] = []
    axis = 0
    for n in range(count):
        if masks["ellipsis"] >> n & 1:
            for _ in range(rest + 1):
                result.append((axis, "whole", shape[axis]))
                axis += 1
            rest = 0
        elif masks["new_axis"] >> n & 1:
            result.append((None, "new", 1))
        elif masks["shrink_axis"] >> n & 1:
            result.append((axis, "one", 1))
            axis += 1
        else:
            step = _entry(strides, n)
            starts = masks["begin"] >> n & 1 or _entry(begin, n) == 0
            ends = masks["end"] >> n & 1 or _entry(end, n) == shape[axis]
            if starts and ends and step == 1:
                result.append((axis, "whole", shape[axis]))
            else:
                size = _size_of_part(
                    shape[axis],
                    None if masks["begin"] >> n & 1 else (_entry(begin, n),),
                    None if masks["end"] >> n & 1 else (_entry(end, n),),
                    step,
                )
                result.append((axis, "part", size))
            axis += 1
    result += [(n, "whole", shape[n]) for n in range(axis, len(shape))]
    return result


def _size_of_part(
    size: SizeLike | None, begin: Bound, end: Bound, step: SizeLike | None
) -> int | None:
    """Returns the number of elements that a slice takes; `None` if unknown."""
    if not isinstance(size, int):
        return None
    numbers: list[int | None] = []
    for bound in (begin, end, (step,)):
        if bound is None:
            numbers.append(None)
        elif isinstance(bound[0], int):
            numbers.append(bound[0])
        else:
            return None
    return len(range(size)[slice(*numbers)])


def _entry(value: Value, index: int) -> SizeLike | None:
    return value[index] if isinstance(value, tuple) else None


def strided_slice(node: Node) -> Axes | None:
    """Returns the axes of a slice.

    Axes that are taken whole can be sharded. Returns `None` if they are
    unknown.
    """
    taken = sliced_axes(node, node.inputs[0].shape)
    if taken is None:
        return None
    labels, out = _labels_taken(taken, len(node.inputs[0].shape))
    return Axes((labels, None, None, None), (out,), linear=(0,))


def _labels_taken(taken: Sequence[Taken], rank: int) -> tuple[Labels, Labels]:
    """Returns labels of a value's axes, and labels of the axes of its slice."""
    whole = [axis for axis, what, _ in taken if what == "whole"]
    labels = tuple(n if n in whole else None for n in range(rank))
    left = [axis for axis, what, _ in taken if what != "one"]
    return labels, tuple(axis if axis in whole else None for axis in left)


def strided_slice_shape(node: Node) -> list[Shape | None] | None:
    """Returns a slice's shape; `None` if its axes are unknown."""
    taken = sliced_axes(node, node.inputs[0].shape)
    if taken is None:
        return None
    return [tuple(size for _, what, size in taken if what != "one")]


_moving(
    "StridedSlice",
    axes=strided_slice,
    plan=halos.STRIDED_SLICE,
    shape=strided_slice_shape,
    value=integers.strided_slice,
)


def strided_slice_grad(node: Node) -> Axes | None:
    """Returns axes of a slice's gradient, `(shape, begin, end, strides, dy)`.

    It pads `dy` with zeros; axes that aren't sliced can be sharded. Returns
    `None` if the axes are unknown.
    """
    shape = node.inputs[0].value
    if not isinstance(shape, tuple):
        return None
    taken = sliced_axes(node, shape)
    if taken is None:
        return None
    out, labels = _labels_taken(taken, len(shape))
    return Axes(
        (None, None, None, None, labels), (out,), sizes={0: 0}, linear=(4,)
    )


operation(
    "StridedSliceGrad",
    axes=strided_slice_grad,
    plan=halos.OF_STRIDED_SLICE,
    shape=shape_of_input(0),
)


def range_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape of a range from 0 to a symbolic size, by steps of 1.

    Returns `None` for other ranges.
    """
    start, limit, delta = (tensor.value for tensor in node.inputs)
    if start != 0 or delta != 1 or not isinstance(limit, sizes.Size):
        return None
    return [(limit,)]


_moving(
    "Range", shape=range_shape, value=integers.range_, traits={Trait.GENERATES}
)


def pad(node: Node) -> Axes | None:
    """Returns a padding's axes; padded axes are whole. `None` if unknown."""
    value = node.inputs[0]
    paddings = node.inputs[1].node
    if value.shape is None or paddings.type != "Const":
        return None
    labels = tuple(
        n if not pads.any() else None
        for n, pads in enumerate(constant_array(paddings))
    )
    rest = (None,) * (len(node.inputs) - 1)
    return Axes((labels, *rest), (labels,), linear=(0,))


operation("Pad", "PadV2", axes=pad, plan=halos.PADDING, traits={Trait.MOVES})

operation("MirrorPad", axes=pad, traits={Trait.MIRRORS, Trait.MOVES})

operation("MirrorPadGrad", axes=pad, traits={Trait.MIRRORS})


def reverse(node: Node) -> Axes | None:
    """Returns axes of a reversal or roll; axes that it moves must be whole.

    Returns `None` if these are unknown.
    """
    shape, where = node.inputs[0].shape, sizes.as_tuple(node.inputs[-1].value)
    if shape is None or not sizes.are_integers(where):
        return None
    moved = {axis % len(shape) for axis in where}
    labels = tuple(None if n in moved else n for n in range(len(shape)))
    rest = (None,) * (len(node.inputs) - 1)
    return Axes((labels, *rest), (labels,), linear=(0,))


operation("ReverseV2", "Roll", axes=reverse, traits={Trait.MOVES})


# Repeating -----------------------------------------------------------------


def broadcast_to(node: Node) -> Axes | None:
    """Returns a broadcast's axes; all can be sharded. `None` if unknown."""
    source, out = node.inputs[0].shape, node.outputs[0].shape
    if source is None or out is None:
        return None
    return Axes(
        (broadcast_labels(source, out), None),
        (tuple(range(-len(out), 0)),),
        sizes={1: 0},
    )


_moving(
    "BroadcastTo",
    axes=broadcast_to,
    shape=shape_of_input(1),
    traits={Trait.GENERATES},
)


operation(
    "Fill",
    axes=axes("* -> ...", sizes={0: 0}),
    shape=shape_of_input(0),
    value=integers.fill,
    traits={Trait.CHEAP, Trait.GENERATES, Trait.MOVES},
)


def tile(node: Node) -> Axes | None:
    """Returns the axes of a tiling.

    Axes that aren't repeated can be sharded, and repeated axes of size 1.
    Returns `None` if the rank or the multiples are unknown.
    """
    shape, multiples = node.inputs[0].shape, node.inputs[1].value
    if shape is None or not isinstance(multiples, tuple):
        return None
    labels = tuple(n if m == 1 else None for n, m in enumerate(multiples))
    out = tuple(
        n if 1 in (shape[n], multiple) else None
        for n, multiple in enumerate(multiples)
    )
    return Axes((labels, None), (out,), multiples=1)


def tile_rows(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a repetition along the sharded axis.

    Each repetition adds blocks of all rows (`Sharded.outer` counts them), and a
    replica holds its rows of each. Returns `None` if the input isn't sharded, if
    its sharded axis isn't repeated, or is an unknown number of times.
    """
    kind, multiples = kinds[0], node.inputs[1].value
    if not isinstance(kind, Sharded) or not isinstance(multiples, tuple):
        return None
    times = multiples[kind.axis]
    if not isinstance(times, int) or times == 1:
        return None
    given = kind.in_blocks(sizes.product([kind.outer, times]))
    return Plan((kind, REPLICATED), (given,))


def tile_shape(node: Node) -> list[Shape | None] | None:
    """Returns the sizes times the multiples; `None` if these are unknown."""
    shape, multiples = node.inputs[0].shape, node.inputs[1].value
    if shape is None or not isinstance(multiples, tuple):
        return None
    return [tuple(sizes.product(pair) for pair in zip(shape, multiples))]


_moving(
    "Tile",
    axes=tile,
    plan=tile_rows,
    shape=tile_shape,
    traits={Trait.GENERATES},
)


def one_hot(node: Node) -> Axes | None:
    """Returns a one-hot's axes; the new axis is whole. `None` if unknown."""
    shape = node.inputs[0].shape
    if shape is None:
        return None
    labels = tuple(range(len(shape)))
    axis = node.attr("axis") % (len(shape) + 1)
    out = (*labels[:axis], None, *labels[axis:])
    return Axes((labels, None, None, None), (out,))


_moving("OneHot", axes=one_hot)


# Matrices in the last two axes -----------------------------------------------


def batch_of_matrices(node: Node) -> Axes | None:
    """Returns the axes of an operation on batches of matrices (or FFT vectors).

    Axes of the batch can be sharded. Inputs that aren't float or complex are
    whole. Returns `None` if a rank is unknown, or too low.
    """
    tensors = (*node.inputs, *node.outputs)
    if any(tensor.shape is None for tensor in tensors):
        return None
    ranks = [len(tensor.shape) for tensor in tensors]
    outputs = ranks[len(node.inputs) :]
    inner = 2
    if node.type in ("MatrixDiag", "MatrixDiagV2", "MatrixDiagV3"):
        inner = 1 + (ranks[-1] == ranks[0])  # A band has two axes.
    if node.type in ("FFT", "IFFT", "RFFT", "IRFFT"):
        inner = 1
    if node.type.endswith("FT3D"):
        inner = 3
    batch = ranks[0] - inner
    if batch < 0 or min(outputs) < batch:
        return None
    front = tuple(range(batch))

    def labels(rank: int) -> Labels:
        return front + (None,) * (rank - batch)

    return Axes(
        tuple(
            labels(rank)
            if rank >= batch
            and (tensor.dtype.is_floating or tensor.dtype.is_complex)
            else None
            for rank, tensor in zip(ranks, node.inputs)
        ),
        tuple(map(labels, outputs)),
    )


operation(
    *"""
BatchMatrixBandPart Cholesky CholeskyGrad FFT FFT2D FFT3D IFFT IFFT2D IFFT3D
IRFFT IRFFT2D LogMatrixDeterminant MatrixDeterminant MatrixDiagPart
MatrixDiagPartV2 MatrixDiagPartV3 MatrixExponential MatrixInverse MatrixSetDiag
MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve Qr RFFT RFFT2D SelfAdjointEigV2
Svd
""".split(),
    axes=batch_of_matrices,
)

_moving("MatrixBandPart", "MatrixDiagV3", axes=batch_of_matrices)

operation(
    "MatrixDiag", "MatrixDiagV2", axes=batch_of_matrices, traits={Trait.CHEAP}
)


operation(
    "MatrixTriangularSolve", axes=axes("...__, ...__ -> ...__", broadcasts=True)
)

operation(
    "TridiagonalSolve",
    axes=axes("...__, ..._n -> ..._n", linear=(1,)),
    shape=lambda node: [node.inputs[1].shape],
)
