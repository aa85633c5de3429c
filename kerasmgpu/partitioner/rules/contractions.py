"""Products that sum over common axes: matrix products and einsum."""

from kerasmgpu.partitioner.rules.notation import axes
from kerasmgpu.partitioner.rules.table import Axes
from kerasmgpu.partitioner.step.graph import Node
from kerasmgpu.partitioner.step.records import Trait, operation


def matmul(node: Node) -> Axes | None:
    """Returns the axes of a product, `[m, k] x [k, n] -> [m, n]`."""
    left = "km" if node.attr("transpose_a") else "mk"
    right = "nk" if node.attr("transpose_b") else "kn"
    return axes(f"{left}, {right} -> mn", linear=(0, 1))(node)


operation("MatMul", axes=matmul, traits={Trait.PRODUCT})


def batch_matmul(node: Node) -> Axes | None:
    """Returns the axes of `[..., m, k] x [..., k, n]`; `...` is broadcast.

    Returns `None` if a rank is unknown.
    """
    left = "km" if node.attr("adj_x") else "mk"
    right = "nk" if node.attr("adj_y") else "kn"
    text = f"...{left}, ...{right} -> ...mn"
    return axes(text, linear=(0, 1), broadcasts=True)(node)


operation(
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    axes=batch_matmul,
    traits={Trait.PRODUCT},
)


def einsum(node: Node) -> Axes | None:
    """Returns the axes of the equation.

    Returns `None` if it takes a diagonal, or a rank is unknown.
    """
    equation = node.attr("equation")
    for term in equation.replace("->", ",").split(","):
        letters = term.replace("...", "")
        if len(set(letters)) < len(letters):
            return None
    linear = tuple(range(len(node.inputs)))
    return axes(equation, linear=linear, broadcasts=True)(node)


operation("Einsum", axes=einsum, traits={Trait.PRODUCT})

operation("Cross", axes=axes("..._, ..._ -> ..._", linear=(0, 1)))
