"""Operations that work on each element by itself, with broadcasting."""

import math

from kerasmgpu.partitioner.graph import constant_array
from kerasmgpu.partitioner.kinds import PARTIAL, REPLICATED, Partial
from kerasmgpu.partitioner.rules.table import CHEAP, Axes, Plan, axes, plan

UNARY = """
Abs Acos Acosh Angle AsString Asin Asinh Atan Atanh BesselI0 BesselI0e BesselI1
BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0
BesselY1 Bucketize Cast Ceil CheckNumerics CheckNumericsV2 ComplexAbs Conj Cos
Cosh Dawsn DecodeBase64 Digamma Elu EncodeBase64 Erf Erfc Erfinv Exp Expint
Expm1 FakeQuantWithMinMaxArgs Floor FresnelCos FresnelSin Identity Imag Inv
Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Ndtri Neg
OnesLike PopulationCount PreventGradient Real Reciprocal Relu Relu6 Rint Round
Rsqrt Selu Sigmoid Sign Sin Sinh Snapshot Softplus Softsign Spence Sqrt Square
StopGradient StringLength StringLower StringStrip StringToHashBucket
StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Tan
Tanh ZerosLike
""".split()

BINARY = """
Add AddV2 ApproximateEqual Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex Div
DivNoNan EluGrad Equal FloorDiv FloorMod Greater GreaterEqual Igamma
IgammaGradA Igammac InvGrad LeakyReluGrad LeftShift Less LessEqual LogicalAnd
LogicalOr Maximum Minimum Mod Mul MulNoNan NextAfter NotEqual Polygamma Pow
RealDiv ReciprocalGrad Relu6Grad ReluGrad RightShift RsqrtGrad SeluGrad
SigmoidGrad SoftplusGrad SoftsignGrad SqrtGrad SquaredDifference Sub TanhGrad
TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta
""".split()

OTHERS = """
AccumulateNV2 AddN Betainc ClipByValue FakeQuantWithMinMaxArgsGradient
IdentityN SelectV2 StringJoin
""".split()

ELEMENTWISE = frozenset(UNARY + BINARY + OTHERS)
"""Kernels that give the same bits for the same inputs on every replica."""

_LINEAR_IN_FIRST = """
Conj Div EluGrad DivNoNan Identity Imag LeakyReluGrad MulNoNan Neg
PreventGradient Real RealDiv Relu6Grad ReluGrad SeluGrad Snapshot SoftplusGrad
SoftsignGrad StopGradient
""".split()

_LINEAR_IN_SECOND = """
InvGrad ReciprocalGrad RsqrtGrad SigmoidGrad SqrtGrad TanhGrad
""".split()

_LINEAR = {
    **dict.fromkeys(_LINEAR_IN_FIRST, (0,)),
    **dict.fromkeys(_LINEAR_IN_SECOND, (1,)),
    "Mul": (0, 1),
}
_SCALES = {"Mul", "RealDiv"}
_ADDITIVE = {"AccumulateNV2", "Add", "AddN", "AddV2", "Sub"}

CHEAP.update(ELEMENTWISE, ["BiasAdd", "EnsureShape", "Select"])


@axes(*UNARY, *BINARY, *OTHERS)
def elementwise(node):
    """Axes are the same from the last one on; those of size 1 are stretched."""
    if node.type == "IdentityN":
        return None
    out = node.outputs[0].shape
    if any(tensor.shape is None for tensor in node.inputs):
        return None
    if out is None:
        out = _stretched([tensor.shape for tensor in node.inputs])
    stretches = len(node.inputs) > 1 and not _of_one_shape(node.type)
    labels = broadcast_labels if stretches else _labels
    return Axes(
        tuple(labels(tensor.shape, out) for tensor in node.inputs),
        (_labels(out, out),),
        linear=_linear(node),
        additive=node.type in _ADDITIVE and not node.inputs[0].is_narrow,
        stretches=stretches,
    )


def _stretched(shapes):
    """The shape of what is made of several, as far as it is known."""
    out = []
    for axis in range(-max(map(len, shapes), default=0), 0):
        found = {shape[axis] for shape in shapes if -axis <= len(shape)} - {1}
        out.append(found.pop() if len(found) == 1 else None if found else 1)
    return tuple(out)


def broadcast_labels(shape, out):
    """Labels of an input that is stretched to the shape `out`."""
    rank = len(shape)
    return tuple(
        None if size == 1 and out[axis - rank] != 1 else axis - rank
        for axis, size in enumerate(shape)
    )


def _labels(shape, out):
    """Labels of an input that has the shape `out`, if it runs at all."""
    return tuple(range(-len(shape), 0))


def _of_one_shape(type):
    """Whether an operation does not stretch its inputs."""
    if type == "IgammaGradA":
        return False
    return type in ("AccumulateNV2", "AddN") or "Grad" in type


def _linear(node):
    """Numbers of the inputs in which an operation is linear."""
    if any(tensor.is_narrow for tensor in node.inputs):
        return ()
    if node.type == "Cast":
        source, result = node.inputs[0].dtype, node.outputs[0].dtype
        widens = source.is_floating and result.is_floating
        return (0,) if widens and result.size >= source.size else ()
    if node.type == "Div" and node.inputs[0].dtype.is_integer:
        return ()
    if node.type in _SCALES and any(map(_is_wild, node.inputs)):
        return ()
    return _LINEAR.get(node.type, ())


def _is_wild(tensor):
    """Whether a constant makes no number of a part that is 0: infinity, say."""
    if tensor.node.type != "Const" or tensor.static != ():
        return False
    if not tensor.dtype.is_floating:
        return False
    return not math.isfinite(constant_array(tensor.node))


@axes("BiasAdd")
def bias_add(node):
    """`(value, bias)`: each axis may be sharded; the bias is on the channels."""
    rank = node.inputs[0].rank
    if rank is None:
        return None
    labels = tuple(range(rank))
    return Axes((labels, (_channel(node, rank),)), (labels,))


@axes("BiasAddGrad")
def bias_add_grad(node):
    """Sums all axes but the last (or the second: `NCHW`)."""
    rank = node.inputs[0].rank
    if rank is None:
        return None
    channel = _channel(node, rank)
    labels = tuple(range(rank))
    sums = tuple(label for label in labels if label != channel)
    return Axes((labels,), ((channel,),), sums=sums, linear=(0,))


def _channel(node, rank):
    """The axis of the channels: the last, or the second (`NCHW`)."""
    return 1 if node.attr("data_format") == "NCHW" else rank - 1


@axes("Select")
def select(node):
    """As `SelectV2`, but a vector condition chooses rows."""
    out = node.outputs[0].shape
    condition = node.inputs[0].shape
    if out is None or condition is None:
        return None
    labels = tuple(range(len(out)))
    return Axes((labels[: len(condition)], labels, labels), (labels,))


@axes("EnsureShape")
def ensure_shape(node):
    """What it ensures was checked on whole values: the input's shape."""
    rank = node.outputs[0].rank
    if rank is None:
        return None
    labels = tuple(range(rank))
    return Axes((labels,), (labels,), linear=(0,), emit=_identity)


def _identity(build, node, plan, place, inputs):
    """Writes an `Identity` instead of the operation."""
    return build.op("Identity", inputs, {"T": node.inputs[0].dtype}, place)


@plan("NoOp")
def no_op(node, kinds):
    """Holds control dependencies together."""
    return Plan((), ())


@axes("Bitcast")
def bitcast(node):
    """Bits of one element become one element."""
    if node.inputs[0].dtype.size != node.outputs[0].dtype.size:
        return None
    rank = node.inputs[0].rank
    if rank is None:
        return None
    labels = tuple(range(rank))
    return Axes((labels,), (labels,))


@plan("Shape", "Size", "Rank")
def shape(node, kinds):
    """A partial sum has the shape of the sum."""
    if isinstance(kinds[0], Partial):
        return Plan((kinds[0],), (REPLICATED,))
    return None


@plan("ZerosLike", "OnesLike")
def like(node, kinds):
    """A partial sum has the shape of the sum."""
    if kinds[0] == PARTIAL:
        return Plan((PARTIAL,), (REPLICATED,))
    return None
