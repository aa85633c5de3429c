"""Tells which kernels share their input's buffer, or write into it.

Taken from the sources of TensorFlow 2.21.
"""

from collections.abc import Sequence

from kerasmgpu.memory.inferred_shapes import Static
from kerasmgpu.memory.written_function import (
    WrittenNode,
)
from kerasmgpu.partitioner.step.records import Trait, record
from kerasmgpu.strategies.recomputation import VIEWS

SHARE_BUFFERS = VIEWS | {
    "CheckNumerics",
    "CheckNumericsV2",
    "TensorListGetItem",
    "TensorListPopBack",
    "TensorListResize",
}
"""Operations whose outputs share their first input's buffer. An element that is
read from a list keeps the whole list in memory here."""

PUTS = {"TensorListPushBack", "TensorListSetItem"}

_WRITE_IN_PLACE = {
    "AddN",
    "BiasAdd",
    "LogSoftmax",
    "Select",
    "SelectV2",
    "Softmax",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
    "ZerosLike",
}
"""Operations that write into an input, as elementwise ones do."""

_IF_AS_LARGE = {
    "BroadcastTo",
    "ConcatV2",
    "Max",
    "Mean",
    "Min",
    "Pack",
    "Prod",
    "Slice",
    "Sum",
    "Tile",
}
"""Operations that share their input's buffer if they leave its elements as they
are: sums along axes of one element, slices of everything."""

_VIEWS = {"Split", "SplitV", "StridedSlice", "Unpack"}
"""Operations whose outputs are parts of the input's buffer, along axis 0."""

_ALIGNMENT = 64
"""Bytes: a part at a multiple of these in a tensor shares the buffer."""

COPY_ON_READ = ("ResourceScatter", "ResourceSparse")
"""Prefixes of operations after which each read of their variable is a copy."""


def traits_of(node: WrittenNode) -> "frozenset[Trait] | set[Trait]":
    """Returns the traits of a node's type; none for an argument."""
    return set() if node.type == "_Arg" else record(node.type).traits


def shares_first_input(node: WrittenNode, given: Sequence[Static]) -> bool:
    """Whether a node's outputs share the whole buffer of its data input."""
    if node.type in SHARE_BUFFERS or Trait.PASSES in traits_of(node):
        return True
    if node.type == "Cast":
        return node.outputs[0].dtype == given[0].dtype
    if node.type not in _IF_AS_LARGE and node.type not in _VIEWS:
        return False
    made = node.outputs[0].num_bytes
    return made == given[data_input(node)].num_bytes > 0


def is_view(node: WrittenNode, given: Sequence[Static]) -> bool:
    """Whether a node's outputs are parts of its data input's buffer."""
    if node.type not in _VIEWS:
        return False
    made, whole = node.outputs[0], given[data_input(node)].shape
    if made.shape is None or whole is None:
        return False
    if node.type == "Unpack":
        is_first = not node.definition.attr["axis"].i
        return is_first and not made.num_bytes % _ALIGNMENT
    return made.shape[1:] == whole[1:] and not made.num_bytes % _ALIGNMENT


def data_input(node: WrittenNode) -> int:
    """Returns the data input's index: 0, or 1 for `Split`, after its axis."""
    return 1 if node.type == "Split" else 0


def writes_in_place(node: WrittenNode) -> bool:
    """Whether a kernel may write its output into an input's buffer.

    It does so if nothing else reads that input.
    """
    return (
        Trait.ELEMENTWISE in traits_of(node)
        or node.type in _WRITE_IN_PLACE
        or node.type == "CollectiveReduceV2"
    )


def kept(nodes: Sequence[WrittenNode]) -> set[int]:
    """Returns the numbers of forward nodes whose outputs are activations.

    The backward pass reads these outputs, or they are put into a list.
    """
    found: set[int] = set()
    for number in reversed(range(len(nodes))):
        node = nodes[number]
        shares = node.type in SHARE_BUFFERS and number in found
        if node.is_backward or node.type in PUTS or shares:
            found.update(source for source, _ in node.inputs)
    return {number for number in found if not nodes[number].is_backward}


def fused(nodes: Sequence[WrittenNode]) -> set[int]:
    """Returns the numbers of elementwise nodes that only such nodes read.

    XLA fuses them, so that their outputs take no memory. Nodes whose output the
    function returns are not among them.
    """
    read_otherwise: set[int] = set()
    for node in nodes:
        if not _is_elementwise(node):
            read_otherwise.update(source for source, _ in node.inputs)
    return {
        number
        for number, node in enumerate(nodes)
        if _is_elementwise(node)
        and number not in read_otherwise
        and any(node.uses)
        and _is_only_read(nodes, number)
    }


def _is_only_read(nodes: Sequence[WrittenNode], number: int) -> bool:
    """Whether a function returns none of a node's outputs."""
    read = sum(
        source == number
        for follower in set(nodes[number].followers)
        for source, _ in nodes[follower].inputs
    )
    return read == sum(nodes[number].uses)


def _is_elementwise(node: WrittenNode) -> bool:
    is_one = len(node.outputs) == 1
    return is_one and (
        Trait.ELEMENTWISE in traits_of(node) or node.type == "BiasAdd"
    )
