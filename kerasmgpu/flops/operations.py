"""Counts the floating-point operations of one node, by symbolic sizes.

A multiply-add counts as two. Taps of a convolution on its padding count, as in
TensorFlow's profiler.
"""

import math
import re
from collections.abc import Callable
from typing import TypeAlias

from kerasmgpu.partitioner.rules import table
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, declared
from kerasmgpu.partitioner.step.sizes import SizeLike

_Rule: TypeAlias = Callable[[Node], SizeLike | None]


def flops_of(node: Node) -> SizeLike | None:
    """Returns the number of operations of a node with a rule (`has_rule`).

    Returns:
        Integer or `sizes.Size`; `None` if a shape is unknown or, for matrix
        decompositions and Fourier transforms, the size of a matrix or transform
        is not a number.
    """
    count = _RULES[node.type](node)
    return (
        None if count is None else count * _REAL_PRODUCTS.get(_dtype(node), 1)
    )


def has_rule(node: Node) -> bool:
    """Whether a rule counts a node's operations.

    Its first output must be of floats or complex numbers.
    """
    return node.type in _RULES and _is_floating(node.outputs[0])


def dtype_of(node: Node) -> str:
    """Returns the data type of a node's first float input: `"float16"`.

    Complex counts as float, too. Without such an input, it is the output's.
    """
    return _dtype(node)


def is_elementwise(node: Node) -> bool:
    """Whether a node computes too little to be counted, by convention."""
    traits = node.traits
    return any(map(_is_floating, node.outputs)) and (
        not traits.isdisjoint({Trait.ELEMENTWISE, Trait.ADDITIVE})
        or _SMALL.search(node.type) is not None
    )


def is_uncounted(node: Node) -> bool:
    """Whether a node's operations should be counted, but no rule does so."""
    if node.type in _RULES or node.type in _LARGE:
        return not has_rule(node)
    return (
        node.type not in declared()
        and not node.bodies
        and any(map(_is_floating, node.outputs))
        and not is_elementwise(node)
    )


_SMALL = re.compile(
    "Sum|Mean|Max|Min|Prod|Norm|Pool|Softmax|LRN|L2Loss|BiasAdd|Resize|Apply|"
    "Assign(Add|Sub)|Scatter|Random|Bincount"
)
"""Reductions, pooling, normalisation, updates: an operation or two per element."""

_LARGE = {
    *("CTCLoss", "CTCLossV2", "CholeskyGrad", "CropAndResize", "Dilation2D"),
    *(
        "Dilation2DBackpropFilter",
        "Dilation2DBackpropInput",
        "Eig",
        "EagerPyFunc",
    ),
    *("MatrixExponential", "MatrixLogarithm", "MatrixSquareRoot", "PyFunc"),
    *("SelfAdjointEigV2", "Svd", "TridiagonalMatMul", "TridiagonalSolve"),
}
"""Operations that compute more than elementwise ones and have no usual count."""

_REAL_PRODUCTS = {"complex64": 4, "complex128": 4}
"""Real multiply-adds in one complex multiply-add."""


def _dtype(node: Node) -> str:
    given = [tensor for tensor in node.inputs if _is_floating(tensor)]
    return str((given or node.outputs)[0].dtype.name)


def _is_floating(tensor: Tensor) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


# Products --------------------------------------------------------------------


def _contraction(node: Node) -> SizeLike | None:
    """Counts a matrix product or einsum: twice the product of labels' sizes.

    A label of one input alone, without the output, is summed first and left
    out. Returns 0 for an einsum that is elementwise or has one input, and
    `None` if the labels are unknown.
    """
    axes = table.axes_of(node)
    if axes is None:
        return None
    if len(node.inputs) == 1:
        return 0
    left, right = (set(labels or ()) - {None} for labels in axes.inputs)
    if node.type == "Einsum" and left == right and not axes.sums:
        return 0
    known: dict[table.Label, SizeLike] = {}
    kept = set(axes.outputs[0]) | left & right
    for label, size in axes.sizes_of_labels(node):
        if label in kept and not isinstance(known.get(label), int):
            known[label] = size
    return sizes.product([2, *known.values()])


def _convolution(image: str, filters: str, inner: int) -> _Rule:
    """Returns a rule for a convolution or one of its gradients.

    For each element of the convolution's output (or of the output's gradient,
    or of a transposed convolution's input), a filter's elements are multiplied
    and added.

    Args:
        image: Where that output or its gradient is: `"out"`, the node's output,
            or `"in"`, its third input.
        filters: Where the filters are: `"out"`, the node's output (their
            gradient), or `"in"`, its second input.
        inner: Number of the filters' last axes that the output has, too, as its
            channels.
    """

    def rule(node: Node) -> SizeLike | None:
        one = node.outputs[0] if image == "out" else node.inputs[2]
        other = node.outputs[0] if filters == "out" else node.inputs[1]
        if one.shape is None or other.shape is None:
            return None
        return sizes.product([2, *one.shape, *other.shape[:-inner]])

    return rule


def _sparse(node: Node) -> SizeLike | None:
    """Counts a sparse matrix times a dense one: 2 · entries · columns."""
    values, matrix = node.inputs[1].shape, node.inputs[3].shape
    if values is None or matrix is None:
        return None
    return sizes.product(
        [2, values[0], matrix[0 if node.attr("adjoint_b") else 1]]
    )


# Recurrent layers of cuDNN ---------------------------------------------------

_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


def _recurrent(node: Node) -> SizeLike | None:
    """Counts cuDNN's RNN layers: each gate multiplies its input and state."""
    given, state = node.inputs[0].shape, node.inputs[1].shape
    if given is None or state is None:
        return None
    units, stacked = state[2], state[0 if node.attr("time_major") else 1]
    directions = 2 if node.attr("direction") == "bidirectional" else 1
    if not isinstance(stacked, int):
        return None
    steps, features = sizes.product(given[:2]), given[2]
    total: SizeLike | None = 0
    for _ in range(stacked // directions):
        inputs = sizes.sum_of([features, units])
        total = sizes.sum_of([total, sizes.product([inputs, units])])
        features = sizes.product([units, directions])
    return sizes.product(
        [2 * directions * _GATES[node.attr("rnn_mode")], steps, total]
    )


# Linear algebra and Fourier transforms ---------------------------------------


def _factorisation(count: Callable[..., float]) -> _Rule:
    """Returns a rule for matrices of known size, alone or in batches.

    Args:
        count: Function of rows, columns, and columns of the right-hand side (1
            if there is none), after Golub and Van Loan, Matrix Computations.
    """

    def rule(node: Node) -> SizeLike | None:
        shapes = [tensor.shape for tensor in node.inputs]
        if any(shape is None for shape in shapes):
            return None
        *batch, rows, columns = shapes[0]
        right = shapes[1][-1] if len(shapes) > 1 else 1
        if not all(isinstance(size, int) for size in (rows, columns, right)):
            return None
        return sizes.product([*batch, round(count(rows, columns, right))])

    return rule


def _fourier(node: Node) -> SizeLike | None:
    """Counts a Fourier transform: 5 n log2(n), as usual; half of it if real."""
    axes = int(node.type[-2]) if node.type.endswith("D") else 1
    longer = (
        node.outputs[0] if node.type.startswith("IRFFT") else node.inputs[0]
    )
    if longer.shape is None:
        return None
    number = sizes.product(longer.shape[-axes:])
    if not isinstance(number, int):
        return None
    factor = 2.5 if "RFFT" in node.type else 5
    count = round(factor * number * math.log2(max(number, 1)))
    # Undoes the factor of complex products.
    count = count // _REAL_PRODUCTS.get(_dtype(node), 1)
    return sizes.product([*longer.shape[:-axes], count])


_RULES: dict[str, _Rule] = {
    "SparseTensorDenseMatMul": _sparse,
    "CudnnRNNV3": _recurrent,
    "CudnnRNNBackpropV3": lambda node: sizes.product([2, _recurrent(node)]),
    "Cholesky": _factorisation(lambda n, _, __: n**3 / 3),
    "MatrixInverse": _factorisation(lambda n, _, __: 2 * n**3),
    "MatrixSolve": _factorisation(lambda n, _, k: 2 * n**3 / 3 + 2 * n**2 * k),
    "MatrixTriangularSolve": _factorisation(lambda n, _, k: n**2 * k),
    "Qr": _factorisation(
        lambda m, n, _: 4 * max(m, n) * min(m, n) ** 2 - 4 * min(m, n) ** 3 / 3
    ),
}
for _type in (
    "MatMul",
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "Einsum",
):
    _RULES[_type] = _contraction
for _type in ("Lu", "MatrixDeterminant", "LogMatrixDeterminant"):
    _RULES[_type] = _factorisation(lambda n, _, __: 2 * n**3 / 3)
for _type in ("FFT", "RFFT"):
    for _rank in ("", "2D", "3D"):
        _RULES[_type + _rank] = _RULES["I" + _type + _rank] = _fourier
for _type, _inner, _version in (
    ("Conv2D", 1, ""),
    ("Conv2D", 1, "V2"),
    ("Conv3D", 1, "V2"),
    ("DepthwiseConv2dNative", 2, ""),
):
    _RULES[_type] = _convolution("out", "in", _inner)
    _RULES[f"{_type}BackpropInput{_version}"] = _convolution("in", "in", _inner)
    _RULES[f"{_type}BackpropFilter{_version}"] = _convolution(
        "in", "out", _inner
    )
