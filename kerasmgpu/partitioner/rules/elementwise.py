"""Elementwise operations, with broadcasting."""

import math
from collections.abc import Collection, Sequence
from typing import Any

from kerasmgpu.partitioner.rules import integers, lists
from kerasmgpu.partitioner.rules.kinds import PARTIAL, REPLICATED, Kind, Partial
from kerasmgpu.partitioner.rules.notation import axes
from kerasmgpu.partitioner.rules.table import Axes, Emit, Labels, Plan
from kerasmgpu.partitioner.step.graph import Node, Tensor, constant_array
from kerasmgpu.partitioner.step.records import Trait, operation, record
from kerasmgpu.partitioner.step.sizes import Shape


def elementwise(node: Node) -> Axes | None:
    """Returns the axes, aligned from the last, of an elementwise operation.

    Returns `None` if an input's rank is unknown, and for `IdentityN`.
    """
    if node.type == "IdentityN":
        return None
    out = node.outputs[0].shape
    if any(tensor.shape is None for tensor in node.inputs):
        return None
    if out is None:
        out = _broadcast_shape([tensor.shape for tensor in node.inputs])
    broadcasts = len(node.inputs) > 1 and not _of_one_shape(node.type)
    labels = broadcast_labels if broadcasts else _labels
    return Axes(
        tuple(labels(tensor.shape, out) for tensor in node.inputs),
        (_labels(out, out),),
        linear=_linear(node),
        additive=Trait.ADDITIVE in node.traits and not node.inputs[0].is_narrow,
        broadcasts=broadcasts,
    )


def _elementwise(
    *types: str, traits: Collection[Trait] = (), **rules: Any
) -> None:
    """Declares elementwise operations: all of them are cheap."""
    traits = {Trait.CHEAP, Trait.ELEMENTWISE, *traits}
    operation(*types, axes=elementwise, traits=traits, **rules)


_elementwise(
    *"""
Abs Acos Acosh Angle ApproximateEqual AsString Asin Asinh Atan Atan2 Atanh
BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e
BesselK1 BesselK1e BesselY0 BesselY1 Betainc BitwiseAnd BitwiseOr BitwiseXor
Bucketize Ceil ClipByValue Complex ComplexAbs Cos Cosh Dawsn DecodeBase64
Digamma Elu EncodeBase64 Erf Erfc Erfinv Exp Expint Expm1
FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient Floor FresnelCos
FresnelSin Greater Igamma IgammaGradA Igammac Inv Invert
IsFinite IsInf IsNan LeakyRelu LeftShift Less Lgamma Log Log1p
LogicalNot LogicalOr Minimum Mod Ndtri NextAfter NotEqual
Polygamma PopulationCount Pow Reciprocal Relu Relu6 RightShift Rint Round
Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Spence Sqrt Square
SquaredDifference StaticRegexReplace StringJoin StringLength StringLower
StringStrip StringToHashBucket StringToHashBucketFast StringToHashBucketStrong
StringToNumber StringUpper Tan Tanh TruncateMod Xdivy Xlog1py Xlogy Zeta
""".split()
)

_elementwise("Equal", "GreaterEqual", "LessEqual", holds=integers.equals_hold)

_elementwise("LogicalAnd", holds=integers.all_hold)

_elementwise("Cast", value=integers.same, traits={Trait.KEEPS_NUMBERS})

_elementwise(
    "CheckNumerics",
    # XLA would drop it.
    traits={Trait.CHECKS, Trait.NO_RANDOM_STATE, Trait.OUTSIDE_XLA},
)

_elementwise("CheckNumericsV2", traits={Trait.CHECKS, Trait.NO_RANDOM_STATE})

_elementwise(
    *"""
Conj Div DivNoNan EluGrad Imag LeakyReluGrad MulNoNan Neg Real Relu6Grad
ReluGrad SeluGrad SoftplusGrad SoftsignGrad
""".split(),
    linear=(0,),
)

_elementwise(
    "Identity",
    value=integers.same,
    holds=integers.first_holds,
    facts=lists.same_list_facts,
    linear=(0,),
    traits={Trait.KEEPS_NUMBERS, Trait.OF_LISTS, Trait.PASSES},
)

_elementwise(
    "PreventGradient",
    "StopGradient",
    value=integers.same,
    linear=(0,),
    traits={Trait.KEEPS_NUMBERS, Trait.PASSES},
)

_elementwise("Snapshot", linear=(0,), traits={Trait.PASSES})

_elementwise(
    "Add", "AddV2", "Sub", value=integers.arithmetic, traits={Trait.ADDITIVE}
)

_elementwise("FloorDiv", "TruncateDiv", value=integers.quotient)

_elementwise("FloorMod", value=integers.remainder)

_elementwise(
    "InvGrad",
    "ReciprocalGrad",
    "RsqrtGrad",
    "SigmoidGrad",
    "SqrtGrad",
    "TanhGrad",
    linear=(1,),
)

_elementwise("Maximum", value=integers.maximum)

_elementwise(
    "Mul", value=integers.arithmetic, linear=(0, 1), traits={Trait.SCALES}
)

_elementwise(
    "RealDiv", value=integers.quotient, linear=(0,), traits={Trait.SCALES}
)

_elementwise("AccumulateNV2", traits={Trait.ADDITIVE})

_elementwise(
    "AddN", facts=lists.of_lists_facts, traits={Trait.ADDITIVE, Trait.OF_LISTS}
)

_elementwise("IdentityN", traits={Trait.PASSES})

_elementwise("SelectV2", facts=lists.of_lists_facts, traits={Trait.OF_LISTS})


def _broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """Returns the broadcast of several shapes; unknown sizes are `None`."""
    out = []
    for axis in range(-max(map(len, shapes), default=0), 0):
        found = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        out.append(found.pop() if len(found) == 1 else None if found else 1)
    return tuple(out)


def broadcast_labels(shape: Shape, out: Shape) -> Labels:
    """Returns the labels of an input that is broadcast to the shape `out`.

    They are axis numbers from the last, -1; `None` for axes that are broadcast.
    """
    rank = len(shape)
    return tuple(
        None if size == 1 and out[axis - rank] != 1 else axis - rank
        for axis, size in enumerate(shape)
    )


def _labels(shape: Shape, out: Shape) -> Labels:
    """Returns the labels of an input that must have the shape `out`."""
    return tuple(range(-len(shape), 0))


def _of_one_shape(type: str) -> bool:
    """Whether an operation takes inputs of one shape: it doesn't broadcast."""
    if type == "IgammaGradA":
        return False
    return type in ("AccumulateNV2", "AddN") or "Grad" in type


CHECK_OF_PARTS = "kerasmgpu: each replica's part of a sum"
"""Message of a `CheckNumerics` that each replica runs on its part of a sum: it
waits for no other replica's part."""


def _linear(node: Node) -> tuple[int, ...]:
    """Returns the numbers of the inputs in which an operation is linear."""
    if node.type == "CheckNumerics":
        return (0,) if node.attr("message") == CHECK_OF_PARTS else ()
    if any(tensor.is_narrow for tensor in node.inputs):
        return ()
    if node.type == "Cast":
        source, result = node.inputs[0].dtype, node.outputs[0].dtype
        widens = source.is_floating and result.is_floating
        return (0,) if widens and result.size >= source.size else ()
    if node.type == "Div" and node.inputs[0].dtype.is_integer:
        return ()
    if Trait.SCALES in node.traits and any(map(_is_wild, node.inputs)):
        return ()
    return record(node.type).linear


def _is_wild(tensor: Tensor) -> bool:
    """Whether a scalar is a constant infinity or NaN: times 0 it gives NaN."""
    if tensor.node.type != "Const" or tensor.static != ():
        return False
    if not tensor.dtype.is_floating:
        return False
    return not math.isfinite(constant_array(tensor.node))


def bias_add(node: Node) -> Axes | None:
    """Returns the axes of `(value, bias)`; the bias has the channels' axis."""
    term = _with_channels(node)
    return axes(f"{term}, c -> {term}")(node)


operation("BiasAdd", axes=bias_add, traits={Trait.CHEAP, Trait.MOVES})


def bias_add_grad(node: Node) -> Axes | None:
    """Returns the axes of a sum over all axes but the channels'."""
    return axes(f"{_with_channels(node)} -> c", linear=(0,))(node)


operation("BiasAddGrad", axes=bias_add_grad)


def _with_channels(node: Node) -> str:
    """Returns a value's term: channels are last, or second (`NCHW`)."""
    return "nc..." if node.attr("data_format") == "NCHW" else "...c"


def select(node: Node) -> Axes | None:
    """Returns the axes of `Select`: a vector condition selects rows.

    Any other condition is a scalar, or has the values' shape. Returns `None` if
    a rank is unknown.
    """
    out = node.outputs[0].shape
    condition = node.inputs[0].shape
    if out is None or condition is None:
        return None
    labels = tuple(range(len(out)))
    return Axes((labels[: len(condition)], labels, labels), (labels,))


operation(
    "Select",
    axes=select,
    facts=lists.of_lists_facts,
    traits={Trait.CHEAP, Trait.MOVES, Trait.OF_LISTS},
)


# The inferred shape of the whole value was checked; shards need no check.
operation(
    "EnsureShape",
    axes=axes("... -> ...", linear=(0,), emit=Emit.IDENTITY),
    traits={Trait.CHEAP, Trait.CHECKS, Trait.MOVES},
)


def no_op(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans a node that only has control dependencies."""
    return Plan((), ())


operation("NoOp", plan=no_op, traits={Trait.OUTSIDE_XLA})


def bitcast(node: Node) -> Axes | None:
    """Returns elementwise axes.

    Returns `None` if the types have different sizes, or the rank is unknown.
    """
    if node.inputs[0].dtype.size != node.outputs[0].dtype.size:
        return None
    return axes("... -> ...")(node)


operation("Bitcast", axes=bitcast)


def shape(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans the shape, size or rank of a partial value: that of the whole.

    Returns `None` for other kinds.
    """
    if isinstance(kinds[0], Partial):
        return Plan((kinds[0],), (REPLICATED,))
    return None


operation("Shape", plan=shape, value=integers.shape, traits={Trait.OF_SHAPES})

operation("Size", plan=shape, value=integers.size, traits={Trait.OF_SHAPES})

operation("Rank", plan=shape, value=integers.rank, traits={Trait.OF_SHAPES})


def like(node: Node, kinds: Sequence[Kind]) -> Plan | None:
    """Plans whole ones or zeros, shaped as a partial sum.

    Returns `None` for other kinds.
    """
    if kinds[0] == PARTIAL:
        return Plan((PARTIAL,), (REPLICATED,))
    return None


_elementwise("OnesLike", plan=like)

_elementwise(
    "ZerosLike",
    plan=like,
    facts=lists.zeros_like_facts,
    traits={Trait.OF_LISTS},
)
