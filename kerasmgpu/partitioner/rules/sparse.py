"""Sparse tensors, whose entries are sharded with their rows.

Each replica has the entries of its rows. The first column of their indices is
the row's number in the whole batch. Operations that gather, scatter or sum by
these numbers run on the replica's rows, with numbers relative to its first row.
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
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape, SizeLike


def to_dense(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a dense tensor of rows, `(indices, shape, values, default)`.

    It is sharded by its rows. Returns `None` if the entries aren't.
    """
    found = _entries_and_rows(node, kinds, shape=1)
    if found is None:
        return None
    entries, rows = found
    wants = (entries, LocalSizes(rows), entries, REPLICATED)
    return Plan(wants, (rows,), Emit.FIRST_INPUT_FROM_OWN_ROW)


operation("SparseToDense", plan=to_dense, shape=shape_of_input(1))


def matmul(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a product, `(indices, values, shape, dense)`, of sharded entries.

    The product is sharded by rows; with `adjoint_a`, it is a partial sum over
    rows. Returns `None` if the entries aren't sharded with their rows.
    """
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
    """Plans a sort of entries, `(indices, values, shape)`, within each replica.

    Returns `None` if the entries aren't sharded with their rows.
    """
    entries = _entries(node.inputs[0], kinds[0])
    if entries is None:
        return None
    return Plan((entries, entries, REPLICATED), (entries, entries))


def fill_empty_rows(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a fill of empty rows, `(indices, values, shape, default)`.

    It runs on whole values; its entries, old and new, are then sharded with
    their rows. Returns `None` if the input's entries aren't.
    """
    found = _entries_and_rows(node, kinds, shape=2)
    if found is None:
        return None
    entries, rows = found
    indices = node.outputs[0]
    number = indices.shape[0]
    if number is None:
        return None
    filled = Sharded(
        0, Rows(number, indices, of=rows.rows, over=rows.rows.over)
    )
    whole = (REPLICATED,) * 4
    return Plan(whole, whole, sliced={0: filled, 1: filled})


def sorted_segments(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans sums of the entries of each row, `(data, segment_ids)`.

    Returns `None` unless the entries are sharded with their rows, and empty
    rows were filled.
    """
    entries = _entries(node.inputs[1], kinds[1])
    if entries is None or len(node.inputs[1].shape) != 1:
        return None
    if entries.rows.input.node.type != "SparseFillEmptyRows":
        return None
    rows = Sharded(0, entries.rows.of)
    return Plan((entries, entries), (rows,), Emit.SECOND_INPUT_FROM_OWN_ROW)


def gather_nd(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a gather, `(params, indices)`, from each replica's own rows.

    Returns `None` unless `params` and the entries are sharded by the same rows.
    """
    entries = _entries(node.inputs[1], kinds[1])
    if entries is None or kinds[0] != Sharded(0, entries.rows.of):
        return None
    return Plan((kinds[0], entries), (entries,), Emit.SECOND_INPUT_FROM_OWN_ROW)


def gather(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a gather of rows by entries' row numbers: `(params, indices, axis)`.

    Each replica gathers from its own rows of `params`. Returns `None` unless
    `indices` is the vector of row numbers of a sparse tensor's entries, `params`
    is sharded by that tensor's rows, and the axis is 0, without `batch_dims`.
    """
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
    """Plans a scatter, `(indices, updates, shape)`, into a replica's own rows.

    Returns `None` if the entries aren't sharded with their rows.
    """
    found = _entries_and_rows(node, kinds, shape=2)
    if found is None:
        return None
    entries, rows = found
    wants = (entries, entries, LocalSizes(rows))
    return Plan(wants, (rows,), Emit.FIRST_INPUT_FROM_OWN_ROW)


def segments(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans reductions of rows' entries, `(data, segment_ids, num_segments)`.

    Returns `None` unless the entries are sharded with their rows, and each row
    is a segment.
    """
    entries = _entries(node.inputs[1], kinds[1])
    if entries is None or node.inputs[2].value != entries.rows.of.size:
        return None
    if len(node.inputs[1].shape) != 1:
        return None
    rows = Sharded(0, entries.rows.of)
    return Plan((entries, entries, REPLICATED), (rows,), Emit.OWN_SEGMENTS)


def shapes_filled(node: Node) -> list[Shape | None] | None:
    """Returns the shapes of `SparseFillEmptyRows`'s outputs; `None` if unknown.

    These are the indices and values of old and new entries, a flag per row, and
    the new position of each old entry.
    """
    indices = node.inputs[0].shape
    rows = _first(node.inputs[2])
    number = sizes.of(node.outputs[0].symbol(0))
    if indices is None:
        return None
    return [(number, indices[1]), (number,), (rows,), (indices[0],)]


operation("SparseFillEmptyRows", plan=fill_empty_rows, shape=shapes_filled)


def shape_of_sums(node: Node) -> list[Shape | None] | None:
    """Returns the shape of sums of each row's entries, if no row is empty.

    There is a segment for each number up to the last one that occurs, so their
    number is only known if `SparseFillEmptyRows` gave each row an entry.
    Otherwise returns `None`.
    """
    data, ids = node.inputs
    filled = _source(ids)
    if data.shape is None or filled.node.type != "SparseFillEmptyRows":
        return None
    if len(ids.shape or ()) != 1:
        return None
    return [(_first(filled.node.inputs[2]), *data.shape[1:])]


operation("SegmentSum", plan=sorted_segments, shape=shape_of_sums)


def shapes_of_unique(node: Node) -> list[Shape | None] | None:
    """Returns the shapes of distinct elements and of an index per element."""
    return [(None,), node.inputs[0].shape]


operation("Unique", shape=shapes_of_unique, traits={Trait.SIZED_BY_VALUES})


def shapes_in_order(node: Node) -> list[Shape | None] | None:
    """Returns the shapes of the input's indices and values."""
    return [node.inputs[0].shape, node.inputs[1].shape]


operation("SparseReorder", plan=reorder, shape=shapes_in_order)


def shape_of_product(node: Node) -> list[Shape | None] | None:
    """Returns the product's shape, `[rows, columns]`; `None` if unknown."""
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
    """Returns a kind if it shards entries with their rows; otherwise `None`."""
    if not isinstance(kind, Sharded) or kind.rows.of is None:
        return None
    if kind != Sharded(0, kind.rows):
        return None
    return kind if _source(numbers) is kind.rows.input else None


def _entries_and_rows(
    node: Node, kinds: Sequence[Kind], shape: int
) -> tuple[Sharded, Sharded] | None:
    """Returns the kinds of the first input, as entries, and of their rows.

    Args:
        shape: Number of the input that holds the shape of the sparse tensor.

    Returns:
        `(entries, rows)`; `None` if the first input isn't entries that are
        sharded with their rows, or the shape has another number of rows.
    """
    entries = _entries(node.inputs[0], kinds[0])
    if entries is None or _first(node.inputs[shape]) != entries.rows.of.size:
        return None
    return entries, Sharded(0, entries.rows.of)


def _source(numbers: Tensor) -> Tensor:
    """Returns the tensor from which row numbers, or indices, come unchanged.

    That can be the given tensor itself.
    """
    while True:
        node = numbers.node
        is_same = (
            Trait.KEEPS_NUMBERS in node.traits
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
    """Returns the first entry of a vector of sizes; `None` if unknown."""
    return shape.value[0] if isinstance(shape.value, tuple) else None
