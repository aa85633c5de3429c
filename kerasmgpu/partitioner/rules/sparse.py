"""Sparse tensors, whose entries are sharded with their rows.

Each replica has the entries of its rows. The first column of their indices is the
row's number in the whole batch. Operations that gather, scatter or sum by these
numbers run on the replica's rows, with numbers relative to its first row.
"""

from collections.abc import Sequence

from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    LocalSizes,
    Rows,
    Sharded,
)
from kerasmgpu.partitioner.rules.table import Emit, Plan, shape_of_input
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, operation, record
from kerasmgpu.partitioner.step.sizes import Shape, SizeLike


def to_dense(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(indices, shape, values, default)`: each replica's rows of its entries."""
    found = _entries_and_rows(node, kinds, shape=1)
    if found is None:
        return None
    entries, rows = found
    wants = (entries, LocalSizes(rows), entries, REPLICATED)
    return Plan(wants, (rows,), Emit.FIRST_INPUT_FROM_OWN_ROW)


operation("SparseToDense", plan=to_dense, shape=shape_of_input(1))


def matmul(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(indices, values, shape, dense)`: a product of rows, or a sum over rows."""
    found = _entries_and_rows(node, kinds, shape=2)
    if found is None:
        return None
    entries, rows = found
    dense: Kind = REPLICATED
    gives: Kind = rows
    if node.attr("adjoint_a"):
        dense, gives = rows.at(int(node.attr("adjoint_b"))), PARTIAL
    wants = (entries, entries, LocalSizes(rows), dense)
    return Plan(wants, (gives,), Emit.FIRST_INPUT_FROM_OWN_ROW)


def reorder(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(indices, values, shape)`: sorts the entries of each row."""
    entries = _entries(node.inputs[0], kinds[0])
    if entries is None:
        return None
    return Plan((entries, entries, REPLICATED), (entries, entries))


def fill_empty_rows(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(indices, values, shape, default)`: new entries are sharded with their rows."""
    found = _entries_and_rows(node, kinds, shape=2)
    if found is None:
        return None
    entries, rows = found
    indices = node.outputs[0]
    number = indices.shape[0]
    if number is None:
        return None
    filled = Sharded(0, Rows(number, indices, of=rows.rows))
    whole = (REPLICATED,) * 4
    return Plan(whole, whole, sliced={0: filled, 1: filled})


def sorted_segments(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(data, segment_ids)`: sums the entries of each row, if none is empty."""
    entries = _entries(node.inputs[1], kinds[1])
    if entries is None or len(node.inputs[1].shape) != 1:
        return None
    if entries.rows.input.node.type != "SparseFillEmptyRows":
        return None
    rows = Sharded(0, entries.rows.of)
    return Plan((entries, entries), (rows,), Emit.SECOND_INPUT_FROM_OWN_ROW)


def gather_nd(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(params, indices)`: gathers from the replica's rows."""
    entries = _entries(node.inputs[1], kinds[1])
    if entries is None or kinds[0] != Sharded(0, entries.rows.of):
        return None
    return Plan((kinds[0], entries), (entries,), Emit.SECOND_INPUT_FROM_OWN_ROW)


def gather(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(params, indices, axis)`: gathers the replica's rows."""
    entries = _entries(node.inputs[1], kinds[1])
    if entries is None or kinds[0] != Sharded(0, entries.rows.of):
        return None
    if node.inputs[2].value != 0 or node.attr("batch_dims"):
        return None
    if len(node.inputs[1].shape) != 1:
        return None
    wants = (kinds[0], entries, REPLICATED)
    return Plan(wants, (entries,), Emit.SECOND_INPUT_FROM_OWN_ROW)


def scatter_nd(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(indices, updates, shape)`: scatters into the replica's rows."""
    found = _entries_and_rows(node, kinds, shape=2)
    if found is None:
        return None
    entries, rows = found
    wants = (entries, entries, LocalSizes(rows))
    return Plan(wants, (rows,), Emit.FIRST_INPUT_FROM_OWN_ROW)


def segments(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """`(data, segment_ids, num_segments)`: sums the entries of each row."""
    entries = _entries(node.inputs[1], kinds[1])
    if entries is None or node.inputs[2].value != entries.rows.of.size:
        return None
    if len(node.inputs[1].shape) != 1:
        return None
    rows = Sharded(0, entries.rows.of)
    return Plan((entries, entries, REPLICATED), (rows,), Emit.OWN_SEGMENTS)


def shapes_filled(node: Node) -> list[Shape | None] | None:
    """New number of entries, a flag per row, and a position per old entry."""
    indices = node.inputs[0].shape
    rows = _first(node.inputs[2])
    number = sizes.of(node.outputs[0].symbol(0))
    if indices is None:
        return None
    return [(number, indices[1]), (number,), (rows,), (indices[0],)]


operation("SparseFillEmptyRows", plan=fill_empty_rows, shape=shapes_filled)


def shape_of_sums(node: Node) -> list[Shape | None] | None:
    """A row for each segment up to the last one: for all, if none is empty."""
    data, ids = node.inputs
    filled = _source(ids)
    if data.shape is None or filled.node.type != "SparseFillEmptyRows":
        return None
    if len(ids.shape or ()) != 1:
        return None
    return [(_first(filled.node.inputs[2]), *data.shape[1:])]


operation("SegmentSum", plan=sorted_segments, shape=shape_of_sums)


def shapes_of_unique(node: Node) -> list[Shape | None] | None:
    """The distinct elements, and an index per element."""
    return [(None,), node.inputs[0].shape]


operation("Unique", shape=shapes_of_unique, traits={Trait.SIZED_BY_VALUES})


def shapes_in_order(node: Node) -> list[Shape | None] | None:
    """The shapes of the input's indices and values."""
    return [node.inputs[0].shape, node.inputs[1].shape]


operation("SparseReorder", plan=reorder, shape=shapes_in_order)


def shape_of_product(node: Node) -> list[Shape | None] | None:
    """`[rows, columns]` of the product."""
    sparse, dense = node.inputs[2].value, node.inputs[3].shape
    if not isinstance(sparse, tuple) or dense is None:
        return None
    rows = sparse[1] if node.attr("adjoint_a") else sparse[0]
    columns = dense[0] if node.attr("adjoint_b") else dense[1]
    return [(rows, columns)]


operation(
    "SparseTensorDenseMatMul",
    plan=matmul,
    shape=shape_of_product,
    traits={Trait.PRODUCT},
)


def _entries(numbers: Tensor, kind: Kind) -> Sharded | None:
    """Returns the kind of a tensor of row numbers, or of indices, of entries.

    `None` if its rows aren't entries of a sparse tensor.
    """
    if not isinstance(kind, Sharded) or kind.rows.of is None:
        return None
    if kind != Sharded(0, kind.rows):
        return None
    return kind if _source(numbers) is kind.rows.input else None


def _entries_and_rows(
    node: Node, kinds: Sequence[Kind], shape: int
) -> tuple[Sharded, Sharded] | None:
    """Returns the kinds of the entries that are a node's first input, and of rows.

    Args:
        node: The node.
        kinds: Kinds of its inputs.
        shape: Number of the input that must be the shape of these rows.

    Returns:
        `(entries, rows)`, or `None` where the node has none.
    """
    entries = _entries(node.inputs[0], kinds[0])
    if entries is None or _first(node.inputs[shape]) != entries.rows.of.size:
        return None
    return entries, Sharded(0, entries.rows.of)


def _source(numbers: Tensor) -> Tensor:
    """The indices from which a tensor's row numbers were taken unchanged."""
    while True:
        node = numbers.node
        is_same = (
            Trait.KEEPS_NUMBERS in record(node.type).traits
            or (node.type == "SparseReorder" and numbers.index == 0)
            or (node.type == "Maximum" and _is_zero(node.inputs[1]))
            or (node.type == "StridedSlice" and _is_first_column(node))
        )
        if not is_same:
            return numbers
        numbers = node.inputs[0]


def _is_zero(tensor: Tensor) -> bool:
    """Whether all elements are known to be 0."""
    node = tensor.node
    if node.type == "Fill":
        tensor = node.inputs[1]
    return node.type == "ZerosLike" or tensor.value == 0


def _is_first_column(node: Node) -> bool:
    """Whether a slice is `[:, 0]`."""
    given, *bounds = node.inputs
    begin, end, strides = (tensor.value for tensor in bounds)
    if None in (begin, end, strides) or len(given.shape or ()) != 2:
        return False
    if node.attr("ellipsis_mask") or node.attr("new_axis_mask"):
        return False
    is_all_rows = node.attr("begin_mask") & node.attr("end_mask") & 1
    return bool(
        len(begin) == 2
        and is_all_rows
        and node.attr("shrink_axis_mask") == 2
        and (begin[1] == 0 or node.attr("begin_mask") & 2)
        and strides == (1, 1)
    )


def _first(shape: Tensor) -> SizeLike | None:
    """The first entry of a vector of sizes; `None` if unknown."""
    return shape.value[0] if isinstance(shape.value, tuple) else None
