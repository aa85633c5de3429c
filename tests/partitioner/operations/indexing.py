"""Gathers, scatters and segment sums."""

from tests.partitioner.operations.table import operation
from tests.partitioner.scope import Skip


@operation(3)
def gather(scope):
    """Elements of an axis, by number."""
    x = scope.value(least=1)
    axis = scope.axis(x)
    indices, text = _indices(scope, x, axis)
    most = min(x.rank - 1, indices.rank)
    batch = 0
    while batch < most and x.shape[batch] == indices.shape[batch]:
        batch += 1
    batch = scope.integer(0, batch)
    if axis % x.rank < batch:
        axis = batch
    scope.let(f"tf.gather({x}, {text}, axis={axis}, batch_dims={batch})", x)


@operation()
def gather_nd(scope):
    """Elements by numbers of several axes."""
    x = scope.value(least=1)
    indices, text = _indices(scope, x, 0)
    is_batch = indices.rank > 0 and x.rank > 1
    is_batch = is_batch and x.shape[0] == indices.shape[0]
    batch = scope.integer(0, int(is_batch))
    if batch:
        text = f"tf.math.floormod({indices}, {_size(x, 1)})"
    scope.let(f"tf.gather_nd({x}, ({text})[..., None], batch_dims={batch})", x)


@operation(2)
def scatter_nd(scope):
    """What meets at one place is added."""
    updates = scope.value("number", least=1)
    indices = scope.value("index", 1, 2, _leads(updates))
    size = scope.integer(1, 4)
    inner = [
        scope.size(updates, axis) for axis in range(indices.rank, updates.rank)
    ]
    scope.let(
        f"tf.scatter_nd(tf.cast({indices}, tf.int32)[..., None] % {size}, "
        f"{updates}, [{', '.join([str(size), *inner])}])",
        updates,
    )


@operation()
def tensor_scatter(scope):
    """Into a value that is there."""
    x = scope.value("number", least=1, where=lambda v: v.shape[0])
    updates = scope.alike(x, lambda v: v.rank and v.shape[1:] == x.shape[1:])
    indices = scope.value("index", 1, 1, _leads(updates))
    name = scope.choice(["add", "sub"])
    scope.let(
        f"tf.tensor_scatter_nd_{name}({x}, ({indices} % {_size(x, 0)})"
        f"[:, None], {updates})",
        x,
        updates,
    )


@operation(2)
def segments(scope):
    """Sums and extremes of rows with the same number."""
    x = scope.value("number", least=1)
    names = ["sum", "mean"]
    if x.exact:
        names += ["max", "min", "prod"]
    name = scope.choice(names)
    ids = scope.value("index", 1, x.rank, _leads(x))
    count = scope.integer(1, 3)
    sources = () if name == "mean" else (x,)
    scope.let(
        f"tf.math.unsorted_segment_{name}({x}, {ids} % {count}, {count})",
        *sources,
    )


@operation()
def sorted_segments(scope):
    """The same, where the numbers are in order."""
    x = scope.value("number", least=1)
    ids = scope.value("index", 1, 1, _leads(x))
    scope.let(f"tf.math.segment_sum({x}, tf.sort({ids} % 3))", x)


@operation(2)
def one_hot(scope):
    """Ones where the numbers say, on any axis."""
    x = scope.value("index")
    axis = scope.integer(-1, x.rank)
    depth = scope.integer(1, 4)
    made = scope.let(f"tf.one_hot({x}, {depth}, axis={axis})")
    made.exact = True


@operation()
def bincount(scope):
    """How often each number comes."""
    x = scope.value("index", 1, 2)
    axis = f", axis={scope.choice([-1, 0])}" if x.rank == 2 else ""
    scope.let(
        f"tf.math.bincount(tf.abs({x}) % 4, minlength=4, maxlength=4{axis})"
    )


@operation()
def chosen(scope):
    """Rows of which the number depends on values."""
    x = scope.value(least=1)
    mask = scope.value("bool", 1, x.rank, _leads(x))
    text = scope.choice(
        [
            f"tf.boolean_mask({x}, {mask})",
            f"tf.where({mask})",
            f"tf.dynamic_partition({x}, tf.cast({mask}, tf.int32), 2)[1]",
        ]
    )
    scope.let(text, x)


@operation()
def unique(scope):
    """Numbers without repetition, and where each one is."""
    x = scope.value("index", 1, 1)
    scope.unpack(f"tf.unique({x})", 2)


@operation()
def stitched(scope):
    """Two values, put together by numbers of rows."""
    x = scope.value(least=1)
    scope.let(
        f"tf.dynamic_stitch([tf.range(tf.shape({x})[0]) * 2, "
        f"tf.range(tf.shape({x})[0]) * 2 + 1], [{x}, {x}])",
        x,
    )


@operation(1)
def searchsorted(scope):
    """Places in a sequence for all, or in one for each row."""
    x = scope.value("number", least=1, exact=True)
    y = scope.alike(
        x, lambda v: v.rank == x.rank and v.shape[:-1] == x.shape[:-1], True
    )
    of_all = x.rank == 1 and scope.flag()
    sequence = scope.constant((4,), x.dtype) if of_all else x
    side = scope.choice(["left", "right"])
    scope.let(f"tf.searchsorted(tf.sort({sequence}), {y}, '{side}')", y)


def _indices(scope, value, axis):
    """An integer value, and text of it as numbers of an axis' elements."""
    if not value.shape[axis]:
        raise Skip
    if scope.chance(4):
        made = scope.let(scope.constant([scope.integer(1, 3)], "int32"))
    else:
        made = scope.value("index", most=2)
    return made, f"tf.math.floormod({made}, {_size(value, axis)})"


def _size(value, axis):
    return value.shape[axis]


def _leads(value):
    """Whether the axes of another value are the first ones of this."""
    return lambda other: value.shape[: other.rank] == other.shape
