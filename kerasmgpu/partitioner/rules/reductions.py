"""Reductions over axes, and operations along one axis."""

from kerasmgpu.partitioner.rules import integers
from kerasmgpu.partitioner.rules.notation import axes
from kerasmgpu.partitioner.rules.table import Axes, Emit, Labels, all_but
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import operation
from kerasmgpu.partitioner.step.sizes import Shape


def reduce(node: Node) -> Axes | None:
    """Returns a reduction's axes; reduced axes have no label in the output.

    Products, Euclidean norms and integer means can't be reduced in parts: their
    reduced axes must be whole. Returns `None` if the axes are unknown.
    """
    reduced = reduced_axes(node)
    if reduced is None:
        return None
    rank = len(node.inputs[0].shape)
    is_linear = node.type in ("Sum", "Mean")
    by: str | None = "sum" if is_linear else node.type.lower()
    if node.type in ("EuclideanNorm", "Prod"):
        by = None  # Can't be reduced in parts.
    if node.type == "Mean" and node.outputs[0].dtype.is_integer:
        by, is_linear = None, False  # An integer mean is rounded.
    labels: Labels = tuple(range(rank))
    if by is None:
        labels = tuple(None if axis in reduced else axis for axis in labels)
    keeps = node.attr("keep_dims")
    kept = tuple(
        None if axis in reduced else axis
        for axis in range(rank)
        if keeps or axis not in reduced
    )
    return Axes(
        (labels, None),
        (kept,),
        sums=tuple(reduced) if by else (),
        by=by or "sum",
        linear=(0,) if is_linear else (),
        emit=Emit.LOCAL_MEAN if node.type == "Mean" else None,
    )


def reduced_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shape without reduced axes, or with 1s; `None` if unknown."""
    given, reduced = node.inputs[0].shape, reduced_axes(node)
    if reduced is None:
        return None
    if node.attr("keep_dims"):
        return [tuple(1 if n in reduced else s for n, s in enumerate(given))]
    return [tuple(s for n, s in enumerate(given) if n not in reduced)]


operation("All", axes=reduce, shape=reduced_shape, holds=integers.first_holds)

operation(
    "Any",
    "EuclideanNorm",
    "Max",
    "Mean",
    "Min",
    axes=reduce,
    shape=reduced_shape,
)

operation(
    "Prod", "Sum", axes=reduce, shape=reduced_shape, value=integers.reduce
)


def is_sum(node: Node) -> bool:
    """Whether it is a sum over some axes."""
    return node.type == "Sum"


def sums_nothing(node: Node) -> bool:
    """Whether it is a sum over no axes, as the gradient of a broadcast can be."""
    return is_sum(node) and reduced_axes(node) == set()


def reduced_axes(node: Node) -> set[int] | None:
    """Returns the reduced axes; `None` if unknown."""
    shape, reduced = node.inputs[0].shape, sizes.as_tuple(node.inputs[1].value)
    if shape is None or not sizes.are_integers(reduced):
        return None
    return {axis % len(shape) for axis in reduced} if shape else set()


def arg(node: Node) -> Axes | None:
    """Returns the axes of an arg-max or -min; the searched axis must be whole.

    Returns `None` if that axis is unknown.
    """
    labels = all_but(node.inputs[0], node.inputs[1].value)
    if labels is None:
        return None
    kept = tuple(label for label in labels if label is not None)
    return Axes((labels, None), (kept,))


operation("ArgMax", "ArgMin", axes=arg)


def cumulative(node: Node) -> Axes | None:
    """Returns a cumulative operation's axes; the accumulated axis is whole.

    Returns `None` if that axis is unknown.
    """
    labels = all_but(node.inputs[0], node.inputs[1].value)
    if labels is None:
        return None
    return Axes(
        (labels, None), (labels,), linear=(0,) if node.type == "Cumsum" else ()
    )


operation(
    "Cumprod",
    "Cumsum",
    "CumulativeLogsumexp",
    axes=cumulative,
    shape=lambda node: [node.inputs[0].shape],
)


operation(
    "LogSoftmax",
    "Softmax",
    axes=axes("..._ -> ..._"),
    shape=lambda node: [node.inputs[0].shape],
)

operation("L2Loss", axes=axes("... ->"))

operation("TopK", "TopKV2", axes=axes("..._ -> ..._, ..._"))

operation("NthElement", axes=axes("..._ -> ..."))

operation("InTopK", "InTopKV2", axes=axes("b_, b -> b"))


def cross_entropy_shape(node: Node) -> list[Shape | None] | None:
    """Returns the shapes of the loss, one per row, and of its gradient.

    The gradient has the broadcast shape of logits and labels. Returns `None` if
    a rank is unknown.
    """
    logits, labels = (tensor.shape for tensor in node.inputs)
    if logits is None or labels is None:
        return None
    if len(labels) == 2:
        logits = tuple(
            a if a == b or b == 1 else b if a == 1 else None
            for a, b in zip(logits, labels)
        )
    return [logits[:1], logits]


operation(
    "SoftmaxCrossEntropyWithLogits",
    axes=axes("..._, ..._ -> ..., ..._", broadcasts=True),
    shape=cross_entropy_shape,
)

operation(
    "SparseSoftmaxCrossEntropyWithLogits",
    axes=axes("b_, b -> b, b_"),
    shape=cross_entropy_shape,
)
