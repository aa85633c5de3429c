"""Gathers, scatters and segment sums."""

from collections.abc import Sequence

import tensorflow as tf

from kerasmgpu.partitioner.rules import integers, sparse, tables
from kerasmgpu.partitioner.rules.kinds import Kind
from kerasmgpu.partitioner.rules.notation import axes
from kerasmgpu.partitioner.rules.table import Axes, Label, Plan
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape


def gather(node: Node) -> Axes | None:
    """Returns the axes of a gather; the gathered axis must be whole.

    The output's axes are `[batch, outer, indices…, inner]`. A variable's axes
    must all be whole. Returns `None` if a rank or the axis is unknown, and for a
    variable with `batch_dims`.
    """
    params, indices = node.inputs[0], node.inputs[1]
    batch = node.attr("batch_dims") or 0
    axis = 0
    if node.type == "GatherV2":
        axis = sizes.as_scalar(node.inputs[2].value)
    if indices.shape is None or not isinstance(axis, int):
        return None
    ids = tuple(f"i{n}" for n in range(len(indices.shape)))
    rest = (None,) * (len(node.inputs) - 2)
    if node.type == "ResourceGather":
        return None if batch else axes("*, ... -> ...*")(node)
    if params.shape is None:
        return None
    axis %= len(params.shape)
    if batch < 0:
        batch += len(ids)
    labels: list[Label] = [f"p{n}" for n in range(len(params.shape))]
    labels[axis] = None
    labels[:batch] = ids[:batch]
    out = (*labels[:axis], *ids[batch:], *labels[axis + 1 :])
    return Axes((tuple(labels), ids, *rest), (out,), linear=(0,))


operation("Gather", axes=gather, traits={Trait.MOVES})


_GATHER_ND = axes("*, ..._ -> ...*", linear=(0,))
"""Axes of a gather, `(params, indices[…, depth])`; `params` must be whole."""

operation(
    "GatherNd", axes=_GATHER_ND, plan=sparse.gather_nd, traits={Trait.MOVES}
)

operation(
    "ResourceGatherNd", axes=_GATHER_ND, traits={Trait.COPIED, Trait.READ_ONLY}
)


def scatter_nd(node: Node) -> Axes | None:
    """Returns the axes of a scatter, `(indices, updates, shape)`.

    Updates with the same index are summed; booleans are combined by logical or.
    Returns `None` for strings, or if a rank is unknown.
    """
    dtype = node.inputs[1].dtype
    if dtype == tf.string:
        return None
    how = {"by": "any"} if dtype.is_bool else {"linear": (1,)}
    return axes("..._, ...* -> *", **how)(node)


operation("ScatterNd", axes=scatter_nd, plan=sparse.scatter_nd)


def unsorted_segment(node: Node) -> Axes | None:
    """Returns the axes of a segment reduction, `(data, ids, num_segments)`.

    It reduces over the axes of `ids`. Returns `None` if a rank is unknown.
    """
    data, ids, _ = node.inputs
    out = node.outputs[0].shape
    if data.shape is None or ids.shape is None or out is None:
        return None
    front = tuple(f"i{n}" for n in range(len(ids.shape)))
    inner = tuple(f"d{n}" for n in range(len(data.shape) - len(front)))
    by = node.type.removeprefix("UnsortedSegment").lower()
    return Axes(
        ((*front, *inner), front, None),
        ((None, *inner),),
        sums=front,
        by=by,
        linear=(0,) if by == "sum" else (),
    )


def bincount(node: Node) -> Axes | None:
    """Returns the axes of a count, `(input, size, weights)`, over the rows.

    Returns `None` if the input isn't a vector, if `weights` are neither empty
    nor a vector, or with `binary_output`.
    """
    shape = node.inputs[0].shape
    if shape is None or len(shape) != 1:
        return None
    weights = node.inputs[2].shape
    if weights is None or (weights != (0,) and len(weights) != 1):
        return None
    given = None if weights == (0,) else ("b",)
    if node.attr("binary_output"):
        return None
    return Axes((("b",), None, given), ((None,),), sums=("b",))


operation("DenseBincount", axes=bincount)


# `(table, keys, default)`
operation("LookupTableFind", "LookupTableFindV2", axes=axes("*, ... -> ...*"))


# `(sorted sequences, values)`: the index of each value in its sequence.
operation("LowerBound", "UpperBound", axes=axes("b_, bm -> bm"))


def gather_shape(node: Node) -> list[Shape | None] | None:
    """Returns `params`' shape; the indices' axes replace the gathered axis.

    Returns `None` if a rank or the axis is unknown.
    """
    params, indices, axis = (node.inputs[n] for n in range(3))
    batch = node.attr("batch_dims") or 0
    if params.shape is None or indices.shape is None:
        return None
    if not isinstance(axis.value, int):
        return None
    where = axis.value % len(params.shape)
    if batch < 0:
        batch += len(indices.shape)
    return [
        (
            *params.shape[:where],
            *indices.shape[batch:],
            *params.shape[where + 1 :],
        )
    ]


def gather_plan(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a gather from each replica's own rows or from a sharded table.

    Returns `None` for any other.
    """
    return sparse.gather(node, kinds) or tables.look_up(node, kinds)


operation(
    "GatherV2",
    axes=gather,
    plan=gather_plan,
    shape=gather_shape,
    value=integers.gather,
    traits={Trait.MOVES},
)


def resource_gather_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape of the indices, followed by that of a variable's row.

    Returns `None` if one is unknown, or with `batch_dims`.
    """
    element, indices = node.inputs[0].element, node.inputs[1].shape
    if element is None or indices is None or node.attr("batch_dims"):
        return None
    return [(*indices, *element[1:])]


operation(
    "ResourceGather",
    axes=gather,
    plan=tables.look_up,
    shape=resource_gather_shape,
    traits={Trait.COPIED, Trait.READ_ONLY},
)


def unsorted_segment_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape of `num_segments` rows; `None` if a rank is unknown."""
    data, ids, count = node.inputs
    if data.shape is None or ids.shape is None:
        return None
    number = count.value if not isinstance(count.value, tuple) else None
    return [(number, *data.shape[len(ids.shape) :])]


operation(
    "UnsortedSegmentMax",
    "UnsortedSegmentMin",
    axes=unsorted_segment,
    plan=sparse.segments,
    shape=unsorted_segment_shape,
)

operation(
    "UnsortedSegmentSum",
    axes=unsorted_segment,
    plan=sparse.segments,
    shape=unsorted_segment_shape,
    traits={Trait.ADDS_SEGMENTS},
)
