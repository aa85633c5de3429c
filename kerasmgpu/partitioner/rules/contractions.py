"""Products that sum over common axes: matrix products and einsum."""

from kerasmgpu.partitioner.rules.elementwise import broadcast_labels
from kerasmgpu.partitioner.rules.table import Axes, Label
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation
from kerasmgpu.partitioner.step.sizes import Shape


def matmul(node: Node) -> Axes | None:
    """`[m, k] x [k, n] -> [m, n]`."""
    left = "km" if node.attr("transpose_a") else "mk"
    right = "nk" if node.attr("transpose_b") else "kn"
    return Axes(
        (tuple(left), tuple(right)), (("m", "n"),), sums=("k",), linear=(0, 1)
    )


operation("MatMul", axes=matmul, traits={Trait.PRODUCT})


def batch_matmul(node: Node) -> Axes | None:
    """`[..., m, k] x [..., k, n] -> [..., m, n]`, the batch axes broadcast."""
    left, right = (tensor.shape for tensor in node.inputs)
    out = node.outputs[0].shape
    if left is None or right is None or out is None:
        return None
    return Axes(
        (
            broadcast_labels(left[:-2], out[:-2])
            + tuple("km" if node.attr("adj_x") else "mk"),
            broadcast_labels(right[:-2], out[:-2])
            + tuple("nk" if node.attr("adj_y") else "kn"),
        ),
        ((*range(2 - len(out), 0), "m", "n"),),
        sums=("k",),
        linear=(0, 1),
        broadcasts=True,
    )


operation(
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    axes=batch_matmul,
    traits={Trait.PRODUCT},
)


def einsum(node: Node) -> Axes | None:
    """Labels are the equation's letters, and numbers for the axes of `...`."""
    terms, out = node.attr("equation").split("->")
    terms = terms.split(",")
    given = []
    for term, tensor in zip(terms, node.inputs):
        if tensor.shape is None:
            return None
        given.append(_labels(term, tensor.shape))
    broadcast = max(
        (
            label
            for labels in given
            for label in labels
            if isinstance(label, int)
        ),
        default=-1,
    )
    result: list[Label] = []
    for letter in out.replace("...", "."):
        result += range(broadcast, -1, -1) if letter == "." else [letter]
    for labels in (*given, result):
        if len(set(labels)) < len(labels):
            return None  # A diagonal.
    inputs = tuple(
        tuple(
            None if isinstance(label, int) and size == 1 else label
            for label, size in zip(labels, tensor.shape)
        )
        for labels, tensor in zip(given, node.inputs)
    )
    sums = {label for labels in given for label in labels} - set(result)
    return Axes(
        inputs,
        (tuple(result),),
        sums=tuple(sums),
        linear=tuple(range(len(inputs))),
        broadcasts=True,
    )


operation("Einsum", axes=einsum, traits={Trait.PRODUCT})


def _labels(term: str, shape: Shape) -> list[Label]:
    """Labels of one term; the axes of `...` are numbers, the last one 0."""
    labels: list[Label] = []
    rest = len(shape) - len(term.replace("...", ""))
    for letter in term.replace("...", "."):
        labels += range(rest - 1, -1, -1) if letter == "." else [letter]
    return labels


def cross(node: Node) -> Axes | None:
    """Cross products along the last axis, which must be whole."""
    if any(tensor.shape is None for tensor in node.inputs):
        return None
    labels = (*range(len(node.inputs[0].shape) - 1), None)
    return Axes((labels, labels), (labels,), linear=(0, 1))


operation("Cross", axes=cross)
