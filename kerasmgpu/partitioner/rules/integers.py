"""Values of small integer tensors, such as shapes, by symbol.

Each rule returns the value of its operation's output (see `graph.Tensor.value`),
or `None` if it is unknown.
"""

from collections.abc import Callable
from typing import TypeAlias

from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor, constant_array
from kerasmgpu.partitioner.step.records import Trait, operation, record
from kerasmgpu.partitioner.step.sizes import Shape, SizeLike, Value

Known: TypeAlias = SizeLike | None
"""An entry of a value; `None` if it is unknown."""

LONGEST = 32
"""Length of the longest vector that can have a known value."""


def const(node: Node) -> Value:
    """Returns an integer, or the entries of an integer vector.

    Returns `None` for constants of other types or ranks, and for long vectors.
    """
    dtype = node.outputs[0].dtype
    proto = node.definition.attr["value"].tensor
    shape = [dimension.size for dimension in proto.tensor_shape.dim]
    if not dtype.is_integer or len(shape) > 1 or sum(shape) > LONGEST:
        return None
    entries = constant_array(node).tolist()
    return tuple(entries) if shape else entries


def constant_holds(node: Node) -> bool:
    """Whether all entries of a constant are true."""
    return bool(constant_array(node).all())


operation("Const", value=const, holds=constant_holds)


def shape(node: Node) -> Shape | None:
    """Returns the input's shape: `None` for an unknown rank or size."""
    return node.inputs[0].shape


def shapes(node: Node) -> list[Shape | None]:
    """Returns each input's shape: `None` for an unknown rank or size."""
    return [tensor.shape for tensor in node.inputs]


operation("ShapeN", value=shapes, traits={Trait.SEVERAL_VALUES})


def concat_offset(node: Node) -> list[tuple] | None:
    """Returns each part's offset in a concatenation, `(axis, shapes…)`.

    Returns `None` if the axis or a shape is unknown.
    """
    axis, *parts = (tensor.value for tensor in node.inputs)
    if not isinstance(axis, int) or None in parts:
        return None
    start, begins = 0, []
    for part in parts:
        begin = [0] * len(part)
        begin[axis], start = start, sizes.sum_of([start, part[axis]])
        begins.append(tuple(begin))
    return begins


operation("ConcatOffset", value=concat_offset, traits={Trait.SEVERAL_VALUES})


def split(node: Node) -> list[tuple] | None:
    """Splits a vector into equal parts, `(axis, vector)`; `None` if unknown."""
    entries, number = node.inputs[1].value, len(node.outputs)
    if not isinstance(entries, tuple) or len(entries) % number:
        return None
    each = len(entries) // number
    return [entries[n * each : (n + 1) * each] for n in range(number)]


def unpack(node: Node) -> list | None:
    """Returns a vector's entries as a list; `None` if unknown."""
    entries = node.inputs[0].value
    return list(entries) if isinstance(entries, tuple) else None


def size(node: Node) -> Value:
    """Returns the product of the input's sizes; `None` if one is unknown."""
    return node.inputs[0].num_elements


def rank(node: Node) -> Value:
    """Returns the number of the input's axes; `None` if unknown."""
    return node.inputs[0].rank


def same(node: Node) -> Value:
    """Returns the input's value; `None` if its type is not an integer's."""
    if not node.inputs[0].dtype.is_integer:
        return None
    return node.inputs[0].value


def pack(node: Node) -> Value:
    """Returns the vector of the inputs' values.

    Returns `None` if one is a vector or there are more than `LONGEST`.
    """
    values = tuple(tensor.value for tensor in node.inputs)
    if any(isinstance(one, tuple) for one in values) or len(values) > LONGEST:
        return None
    return values


def concat(node: Node) -> Value:
    """Returns the concatenation of vectors; `None` if one is unknown."""
    parts = [tensor.value for tensor in node.inputs[:-1]]
    if not all(isinstance(part, tuple) for part in parts):
        return None
    return tuple(entry for part in parts for entry in part)


def strided_slice(node: Node) -> Value:
    """Slices a vector, or takes one of its entries; `None` if unknown."""
    entries, begin, end, strides = (tensor.value for tensor in node.inputs)
    if not isinstance(entries, tuple) or node.attr("ellipsis_mask"):
        return None
    bounds = []
    for bound in (begin, end, strides):
        if not sizes.are_integers(bound) or len(bound) != 1:
            return None
        bounds.append(bound[0])
    first, last, step = bounds
    if node.attr("new_axis_mask"):
        return None
    if node.attr("shrink_axis_mask"):
        return entries[first] if -len(entries) <= first < len(entries) else None
    if node.attr("begin_mask"):
        first = None
    if node.attr("end_mask"):
        last = None
    return entries[slice(first, last, step)]


def slice_(node: Node) -> Value:
    """Slices a vector, `(vector, begin, size)`; `None` if any is unknown."""
    entries, begin, size = (tensor.value for tensor in node.inputs)
    if not isinstance(entries, tuple):
        return None
    if not sizes.are_integers(begin) or not sizes.are_integers(size):
        return None
    (first,), (count,) = begin, size
    return entries[first:] if count == -1 else entries[first : first + count]


def gather(node: Node) -> Value:
    """Returns a vector's entries at the indices, `(vector, indices, axis)`.

    Returns `None` if an input is unknown, or an index is out of range.
    """
    entries, indices, axis = (tensor.value for tensor in node.inputs[:3])
    if not isinstance(entries, tuple) or axis != 0:
        return None
    if isinstance(indices, int):
        return entries[indices] if 0 <= indices < len(entries) else None
    if not sizes.are_integers(indices):
        return None
    if not all(0 <= index < len(entries) for index in indices):
        return None
    return tuple(entries[index] for index in indices)


def reshape(node: Node) -> Value:
    """Returns the input's entries, if the output is a scalar or a vector.

    Returns `None` for other outputs, and for unknown entries.
    """
    source, out = node.inputs[0].value, node.outputs[0].shape
    if source is None:
        given = node.inputs[0]
        source = _slice_of_constant(given) or _side_by_side(given)
    if source is None or out is None or len(out) > 1:
        return None
    entries = sizes.as_tuple(source)
    if len(out) == 0:
        return entries[0] if len(entries) == 1 else None
    return entries


def _side_by_side(tensor: Tensor) -> tuple | None:
    """Returns a vector that interleaves others, as in the gradient of `Tile`.

    Returns `None` unless the tensor is a transposed pack of known vectors.
    """
    node = tensor.node
    if node.type != "Transpose" or node.inputs[0].node.type != "Pack":
        return None
    pack, order = node.inputs[0].node, node.inputs[1].value
    vectors = [given.value for given in pack.inputs]
    if order != (1, 0) or pack.attr("axis") != 0:
        return None
    if not all(isinstance(vector, tuple) for vector in vectors):
        return None
    return tuple(entry for entries in zip(*vectors) for entry in entries)


def _slice_of_constant(tensor: Tensor) -> tuple | None:
    """Returns the entries of a slice of a small integer constant.

    The gradient of `Pad` slices the paddings like that. Returns `None` for any
    other tensor.
    """
    node = tensor.node
    if node.type != "Slice" or node.inputs[0].node.type != "Const":
        return None
    begin, size = (given.value for given in node.inputs[1:])
    if not tensor.dtype.is_integer or sum(node.inputs[0].shape) > LONGEST:
        return None
    if not sizes.are_integers(begin) or not sizes.are_integers(size):
        return None
    taken = constant_array(node.inputs[0].node)[
        tuple(
            slice(first, None if count == -1 else first + count)
            for first, count in zip(begin, size)
        )
    ]
    return tuple(taken.ravel().tolist())


def arithmetic(node: Node) -> Value:
    """Returns the sum, difference or product of each pair of entries.

    Entries are `None` if one of the pair is unknown, or the result overflows.
    """
    operate = {
        "Add": lambda a, b: a + b,
        "AddV2": lambda a, b: a + b,
        "Sub": lambda a, b: a - b,
        "Mul": lambda a, b: sizes.product([a, b]),
    }[node.type]

    def result(a: Known, b: Known) -> Known:
        if a is None or b is None:
            return None
        # Hashes of sizes overflow on purpose: their value is unknown.
        made = operate(a, b)
        return made if sizes.fits(made, node.outputs[0].dtype, 128) else None

    return _broadcast(result, node)


def quotient(node: Node) -> Value:
    """Returns the quotient of each pair of entries; `None` if unknown.

    That of two numbers is rounded down; where a `TruncateDiv` would round up,
    it is unknown. Of symbolic sizes only an exact quotient is known.
    """

    def divide(a: Known, b: Known) -> Known:
        exact = sizes.divide(a, b)
        if exact is None and isinstance(a, int) and isinstance(b, int) and b:
            if node.type == "FloorDiv" or a * b >= 0:
                return a // b
        return exact

    return _broadcast(divide, node)


def remainder(node: Node) -> Value:
    """Returns the remainder of each pair of entries; `None` if unknown.

    With symbolic sizes, it is known only where it is 0, for a multiple.
    """

    def modulo(a: Known, b: Known) -> Known:
        if isinstance(a, int) and isinstance(b, int) and b:
            return a % b
        return None if sizes.divide(a, b) is None else 0

    return _broadcast(modulo, node)


def maximum(node: Node) -> Value:
    """Returns the maximum of each pair of entries; `None` if unknown.

    With symbolic sizes, it is known only if both are equal.
    """

    def largest(a: Known, b: Known) -> Known:
        if a == b:
            return a
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return None

    return _broadcast(largest, node)


def reduce(node: Node) -> Value:
    """Returns the sum or product of a vector's entries.

    Without reduced axes, returns the input's value. Returns `None` if not all
    entries are known, or with `keep_dims`.
    """
    entries, axes = node.inputs[0].value, node.inputs[1].value
    if entries is None or node.attr("keep_dims"):
        return None
    if not isinstance(entries, tuple):
        return entries
    if axes not in (0, -1, (0,), (-1,)):
        return entries if axes == () else None
    if None in entries:
        return None
    return sizes.product(entries) if node.type == "Prod" else sum(entries)


def range_(node: Node) -> Value:
    """Returns a range, `(start, limit, delta)`, if all three are numbers.

    Returns `None` otherwise, and for more than `LONGEST` entries.
    """
    values = [tensor.value for tensor in node.inputs]
    if not all(isinstance(one, int) for one in values) or values[2] == 0:
        return None
    result = tuple(range(*values))
    return result if len(result) <= LONGEST else None


def fill(node: Node) -> Value:
    """Evaluates a fill to a scalar or vector, `(shape, entry)`.

    Returns `None` for higher ranks, and for more than `LONGEST` entries.
    """
    shape, entry = (tensor.value for tensor in node.inputs)
    if shape == ():
        return entry
    if not sizes.are_integers(shape) or len(shape) != 1:
        return None
    return (entry,) * shape[0] if shape[0] <= LONGEST else None


def stitch(node: Node) -> Value:
    """Merges vectors of entries by their indices, `(indices…, entries…)`.

    The last entry of an index counts. Returns `None` if an input is unknown, or
    an index has no entry.
    """
    half = len(node.inputs) // 2
    found = {}
    for places, entries in zip(node.inputs[:half], node.inputs[half:]):
        if places.value is None or entries.value is None:
            return None
        if entries.value != () and places.shape != entries.shape:
            return None
        found.update(
            zip(sizes.as_tuple(places.value), sizes.as_tuple(entries.value))
        )
    if set(found) != set(range(len(found))):
        return None
    return tuple(found[place] for place in range(len(found)))


operation("DynamicStitch", value=stitch)


def invert(node: Node) -> Value:
    """Returns the inverse of a permutation; `None` if it is unknown."""
    order = node.inputs[0].value
    if not sizes.are_integers(order):
        return None
    return tuple(order.index(n) for n in range(len(order)))


operation("InvertPermutation", value=invert)


def broadcast_gradient(node: Node) -> tuple[tuple, tuple] | None:
    """Returns the axes on which two shapes are broadcast: a tuple for each.

    These are the outputs of `BroadcastGradientArgs`. Symbolic sizes count as
    larger than 1. If such a size is 1 when the graph runs, summing over the
    axis changes nothing. Returns `None` if a size is unknown, or if two sizes
    differ and neither is 1.
    """
    one, two = (tensor.value for tensor in node.inputs)
    if not isinstance(one, tuple) or not isinstance(two, tuple):
        return None
    if None in one or None in two:
        return None
    rank = max(len(one), len(two))
    one = (1,) * (rank - len(one)) + one
    two = (1,) * (rank - len(two)) + two
    first, second = [], []
    for axis, (a, b) in enumerate(zip(one, two)):
        if a == b:
            if a == 1:
                first.append(axis)
                second.append(axis)
        elif a == 1:
            first.append(axis)
        elif b == 1:
            second.append(axis)
        else:
            return None
    return tuple(first), tuple(second)


operation(
    "BroadcastGradientArgs",
    value=broadcast_gradient,
    traits={Trait.SEVERAL_VALUES},
)


def always_holds(condition: Tensor) -> bool:
    """Whether a condition on sizes is true, whatever the batch.

    Such is TensorFlow's check that labels have the shape of the logits.
    """
    holds = record(condition.node.type).holds
    return holds is not None and holds(condition.node)


def equals_hold(node: Node) -> bool:
    """Whether all pairs of entries are known to be equal."""
    equal = _broadcast(lambda a, b: int(a is not None and a == b), node)
    return equal is not None and all(sizes.as_tuple(equal))


def first_holds(node: Node) -> bool:
    """Whether the first input, which is what the output is made of, holds."""
    return always_holds(node.inputs[0])


def all_hold(node: Node) -> bool:
    """Whether all inputs hold."""
    return all(map(always_holds, node.inputs))


def _broadcast(operate: Callable[[Known, Known], Known], node: Node) -> Value:
    """Applies an operation to pairs of entries; broadcasts a single entry.

    Returns `None` if the vectors' lengths differ.
    """
    a, b = (tensor.value for tensor in node.inputs)
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return operate(a, b)
    a, b = sizes.as_tuple(a), sizes.as_tuple(b)
    if len(a) == 1:
        a = a * len(b)
    elif len(b) == 1:
        b = b * len(a)
    return tuple(map(operate, a, b)) if len(a) == len(b) else None
