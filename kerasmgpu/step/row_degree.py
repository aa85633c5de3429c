"""Does a scalar grow with the number of rows of the batch, or is it a mean?

A layer may `add_loss` a mean over the batch or a sum over it, and the two are
put together from the replicas' parts in different ways. The graph that
computed the scalar says which it is: like a dimension in physics, the degree
in the number of rows adds under multiplication and subtracts under division,
a sum over the rows has one more than what it sums, and a mean none.
"""

import tensorflow as tf

_SAME = {
    "Identity", "Cast", "Neg", "Abs", "Reshape", "Squeeze", "ExpandDims",
    "StopGradient", "CheckNumerics", "PreventGradient", "EnsureShape", "Pack",
}  # fmt: skip
_PRODUCT = {"Mul", "MulNoNan"}
_QUOTIENT = {"RealDiv", "DivNoNan", "Div"}
_LIKE = {"AddV2", "Add", "AddN", "Sub", "Maximum", "Minimum", "SelectV2"}


def grows_with_rows(scalar):
    """Whether a scalar of a graph is proportional to the number of rows.

    `False` for means, for whatever the graph doesn't settle, and for values
    computed eagerly, which have no graph.
    """
    if tf.executing_eagerly() or not hasattr(scalar, "op"):
        return False
    return _degree(scalar, depth=0) == 1


def _degree(tensor, depth):
    """Degree of a tensor's elements in the number of rows."""
    operation = tensor.op
    inputs = list(operation.inputs)
    kind = operation.type
    if depth > 50 or not inputs:
        return 0
    if kind in _SAME:
        return _degree(inputs[0], depth + 1)
    if kind in _PRODUCT:
        return sum(_degree(value, depth + 1) for value in inputs)
    if kind in _QUOTIENT:
        return _degree(inputs[0], depth + 1) - _degree(inputs[1], depth + 1)
    if kind in _LIKE:
        return max(_degree(value, depth + 1) for value in inputs)
    if kind == "Sum":
        return _degree(inputs[0], depth + 1) + _reduces_rows(inputs)
    if kind == "Mean":
        return _degree(inputs[0], depth + 1)
    if kind == "Prod":
        return 1 if inputs[0].op.type == "Shape" else 0
    if kind == "Size":
        return int(_has_rows(inputs[0]))
    if kind == "StridedSlice" and inputs[0].op.type == "Shape":
        return int(_has_rows(inputs[0].op.inputs[0]))
    return 0


def _has_rows(tensor):
    """Whether the leading axis is that of the batch, whose size is unknown."""
    shape = tensor.shape
    return shape.rank is not None and shape.rank > 0 and shape[0] is None


def _reduces_rows(inputs):
    axes = tf.get_static_value(inputs[1])
    if axes is None or not _has_rows(inputs[0]):
        return 0
    return int(0 in [axis % inputs[0].shape.rank for axis in axes.ravel()])
