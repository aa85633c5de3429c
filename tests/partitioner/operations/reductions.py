"""Sums, means and extremes over axes, and what looks along one axis."""

from tests.partitioner.operations.table import operation


@operation(4)
def reduce(scope):
    """Over any axes."""
    x = scope.value("number")
    whole = ["sum"]
    if x.exact:
        whole += ["max", "min", "prod"]
    inexact = []
    if x.dtype.is_floating:
        inexact = ["mean", "logsumexp", "variance", "euclidean_norm"]
    elif scope.chance(4):
        inexact = ["mean"]
    name = scope.choice(whole + inexact)
    text = f"tf.math.reduce_{name}"
    sources = (x,) if name in whole else ()
    scope.let(f"{text}({x}{_axes(scope, x)})", *sources)


@operation()
def reduce_logical(scope):
    """Whether all or any are true."""
    x = scope.value("bool")
    name = scope.choice(["any", "all"])
    scope.let(f"tf.reduce_{name}({x}{_axes(scope, x)})")


@operation()
def moments(scope):
    """What a batch normalisation does."""
    x = scope.value("wide", least=1)
    axis = scope.axis(x)
    mean, variance = scope.unpack(
        f"tf.nn.moments({x}, [{axis}], keepdims=True)", 2
    )
    scope.let(
        f"tf.nn.batch_normalization({x}, {mean}, {variance}, None, 2.0, 0.1)"
    )


@operation()
def arg(scope):
    """The place of an extreme."""
    x = scope.value("number", least=1, exact=True)
    name = scope.choice(["argmax", "argmin"])
    dtype = scope.choice(["int64", "int32"])
    axis = scope.axis(x)
    scope.let(f"tf.{name}({x}, {axis}, output_type=tf.{dtype})")


@operation(2)
def cumulative(scope):
    """Sums and products along an axis."""
    x = scope.value("number", least=1)
    name = scope.choice(["cumsum", "cumprod"])
    flags = f"exclusive={scope.flag()}, reverse={scope.flag()}"
    scope.let(f"tf.math.{name}({x}, {scope.axis(x)}, {flags})", x)


@operation()
def softmax(scope):
    """Along any axis."""
    x = scope.value("float", least=1)
    name = scope.choice(["softmax", "log_softmax"])
    scope.let(f"tf.nn.{name}({x}, {scope.axis(x)})")


@operation()
def sort(scope):
    """In order, or the order itself."""
    x = scope.value("number", least=1, exact=True)
    direction = scope.choice(["ASCENDING", "DESCENDING"])
    rest = f"{scope.axis(x)}, {direction!r}"
    if scope.flag():
        scope.let(f"tf.sort({x}, {rest})", x)
    else:
        scope.let(f"tf.argsort({x}, {rest}, stable=True)")


@operation()
def top_k(scope):
    """The largest ones of the last axis, and where they are."""
    x = scope.value("number", least=1, exact=True, where=lambda v: v.shape[-1])
    scope.unpack(f"tf.math.top_k({x}, {scope.integer(1, x.shape[-1])})", 2, x)


@operation(2)
def cross_entropy(scope):
    """Losses of rows, from classes or from their probabilities."""
    x = scope.value("float", least=2, where=lambda v: v.shape[-1])
    rows = f"tf.reshape({x}, [-1, {x.shape[-1]}])"
    if scope.flag():
        scope.let(
            f"tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax({x}), {x})"
        )
        return
    labels = scope.value("index", where=lambda v: v.shape == x.shape[:-1])
    text = f"tf.math.floormod({labels}, {x.shape[-1]})"
    if scope.chance(3) and x.exact:
        scope.let(
            f"tf.math.in_top_k(tf.reshape({text}, [-1]), "
            f"tf.cast({rows}, tf.float32), 1)"
        )
    else:
        scope.let(
            f"tf.nn.sparse_softmax_cross_entropy_with_logits({text}, {x})"
        )


@operation()
def l2_loss(scope):
    """Half the sum of squares."""
    x = scope.value("float")
    scope.let(f"tf.nn.l2_loss({x})")


def _axes(scope, value):
    """Text of the arguments that say which axes go."""
    if value.rank == 0:
        return ""
    choice = scope.integer(0, 3)
    if choice == 0:
        return ""
    keeps = f", keepdims={scope.flag()}"
    if choice == 1 and value.rank > 1:
        axes = scope.permutation(value.rank)[: scope.integer(1, 2)]
        return f", {list(axes)}{keeps}"
    return f", {scope.axis(value)}{keeps}"
