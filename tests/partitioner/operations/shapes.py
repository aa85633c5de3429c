"""Operations that move, join or cut axes."""

from tests.partitioner.operations.table import operation


@operation(4)
def reshape(scope):
    """Axes are merged, split, or all become one."""
    x = scope.value(least=1)
    sizes = [scope.size(x, axis) for axis in range(x.rank)]
    how = scope.choice(["merge", "split", "flat", "last", "one"])
    axis = scope.integer(0, x.rank - 1)
    if how == "merge" and axis + 1 < x.rank:
        sizes[axis : axis + 2] = [f"{sizes[axis]} * {sizes[axis + 1]}"]
    elif how == "split":
        divisors = [n for n in (2, 3, 4, 5) if x.shape[axis] % n == 0]
        divisor = scope.choice(divisors)
        pair = [str(divisor), f"{sizes[axis]} // {divisor}"]
        sizes[axis : axis + 1] = pair if scope.flag() else pair[::-1]
    elif how == "flat":
        sizes = ["-1"]
    elif how == "last":
        sizes = ["-1", sizes[-1]]
    else:
        sizes.insert(axis, "1")
    if "-1" not in sizes and scope.flag():
        # One size can be found out.
        sizes[scope.integer(0, len(sizes) - 1)] = "-1"
    scope.let(f"tf.reshape({x}, [{', '.join(sizes)}])", x)


@operation(2)
def reshape_alike(scope):
    """To the shape of another value."""
    x = scope.value()
    y = scope.value(where=lambda v: _count(v) == _count(x))
    scope.let(f"tf.reshape({x}, tf.shape({y}))", x)


@operation(3)
def transpose(scope):
    """Axes in another order."""
    x = scope.value(least=2)
    scope.let(f"tf.transpose({x}, {list(scope.permutation(x.rank))})", x)


@operation(2)
def expand(scope):
    """A new axis, or one less."""
    x = scope.value()
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    if ones and scope.flag():
        axes = "" if scope.chance(4) else f", [{scope.choice(ones)}]"
        scope.let(f"tf.squeeze({x}{axes})", x)
    else:
        scope.let(
            f"tf.expand_dims({x}, {scope.integer(-x.rank - 1, x.rank)})", x
        )


@operation(2)
def concat(scope):
    """Values one after the other."""
    x = scope.value(least=1)
    axis = scope.axis(x)
    y = scope.alike(
        x,
        lambda v: (
            v.rank == x.rank
            and _without(v.shape, axis) == _without(x.shape, axis)
        ),
    )
    parts = [x, y, x] if scope.chance(3) else [x, y]
    scope.let(f"tf.concat([{', '.join(map(str, parts))}], {axis})", x, y)


@operation()
def stack(scope):
    """Values side by side, or cut apart."""
    x = scope.value()
    if scope.flag() and x.rank:
        axis = scope.axis(x)
        if 0 < x.shape[axis] <= 5:
            count = x.shape[axis]
            scope.unpack(f"tf.unstack({x}, {count}, {axis})", count, x)
            return
    y = scope.alike(x, lambda v: v.shape == x.shape)
    axis = scope.integer(-x.rank - 1, x.rank)
    scope.let(f"tf.stack([{x}, {y}], {axis})", x, y)


@operation(2)
def split(scope):
    """Cut in equal parts, or in parts of given sizes."""
    x = scope.value(least=1)
    axis = scope.axis(x)
    size = x.shape[axis]
    if scope.flag():
        counts = [n for n in (2, 3) if size % n == 0]
        count = scope.choice(counts)
        scope.unpack(f"tf.split({x}, {count}, {axis})", count, x)
    else:
        first = scope.integer(0, size)
        rest = "-1" if scope.flag() else size - first
        scope.unpack(f"tf.split({x}, [{first}, {rest}], {axis})", 2, x)


@operation()
def pad(scope):
    """More around it."""
    x = scope.value("number", least=1)
    axis = scope.integer(0, x.rank - 1)
    pads = [[0, 0] for _ in range(x.rank)]
    pads[axis] = [scope.integer(0, 2), scope.integer(0, 2)]
    modes = ["'CONSTANT'", "'CONSTANT', 3"]
    if x.shape[axis] > 2:
        modes += ["'REFLECT'", "'SYMMETRIC'"]
    scope.let(f"tf.pad({x}, {pads}, {scope.choice(modes)})", x)


@operation(2)
def tile(scope):
    """Several times."""
    x = scope.value(least=1)
    axis = scope.axis(x)
    if scope.flag():
        scope.let(f"tf.repeat({x}, {scope.integer(1, 3)}, {axis})", x)
        return
    multiples = [1] * x.rank
    multiples[axis] = scope.integer(0, 3)
    scope.let(f"tf.tile({x}, {multiples})", x)


@operation(4)
def slice_(scope):
    """Parts of axes, as Python writes it."""
    x = scope.value(least=1)
    terms = []
    for size in x.shape[: scope.integer(1, x.rank)]:
        how = scope.integer(0, 6)
        if how == 0 or how == 1:
            terms.append(":")
        elif how == 2:
            terms.append(f"{scope.integer(-size, size)}:")
        elif how == 3:
            terms.append(f":{scope.integer(-size, size)}")
        elif how == 4:
            terms.append(scope.choice(["::2", "::-1", "1::2", "-1:0:-1"]))
        elif how == 5:
            terms.append("tf.newaxis")
        else:
            terms.append(str(scope.integer(-size, max(size - 1, -size))))
    if scope.chance(4):
        terms.insert(0 if scope.flag() else len(terms), "...")
    scope.let(f"{x}[{', '.join(terms)}]", x)


@operation()
def slice_by_size(scope):
    """`tf.slice`."""
    x = scope.value(least=1)
    begins = [scope.integer(0, min(1, size)) for size in x.shape]
    sizes = [
        "-1" if scope.flag() else str(size - begin)
        for size, begin in zip(x.shape, begins)
    ]
    scope.let(f"tf.slice({x}, {begins}, [{', '.join(sizes)}])", x)


@operation()
def half(scope):
    """The first or the last half of an axis, of which the size is asked for."""
    x = scope.value(least=1)
    bound = f"tf.shape({x})[0] // 2"
    text = scope.choice([f"{x}[:{bound}]", f"{x}[{bound}:]"])
    scope.let(text, x)


@operation()
def reverse(scope):
    """Backwards, or around."""
    x = scope.value(least=1)
    axis = scope.axis(x)
    if scope.flag():
        scope.let(f"tf.reverse({x}, [{axis}])", x)
    else:
        scope.let(f"tf.roll({x}, {scope.integer(-2, 2)}, {axis})", x)


@operation(2)
def broadcast(scope):
    """Stretched to another value's shape, or to a new first axis."""
    x = scope.value()
    if scope.flag():
        y = scope.value(where=lambda v: v.shape[v.rank - x.rank :] == x.shape)
        scope.let(f"tf.broadcast_to({x}, tf.shape({y}))", x)
    else:
        sizes = ", ".join(scope.size(x, axis) for axis in range(x.rank))
        scope.let(f"tf.broadcast_to({x}, [{scope.integer(1, 3)}, {sizes}])", x)


@operation(3)
def made_of_sizes(scope):
    """What is made from nothing but sizes."""
    x = scope.value(least=1)
    size = f"tf.shape({x})[{scope.axis(x)}]"
    text = scope.choice(
        [
            f"tf.range({size})",
            f"tf.fill({scope.sizes(x)}, 2.0)",
            f"tf.zeros({scope.sizes(x)})",
            f"tf.ones([{size}])",
            f"tf.eye({size})",
            f"tf.cast({size}, tf.float32)",
            f"tf.cast({size} * 100 + 200, tf.uint8)",
            f"{size} * 1103515245 + 12345",
            f"tf.size({x})",
            f"tf.linspace(0.0, 1.0, {size} + 1)",
            f"tf.sequence_mask([1, 2], {size})",
        ]
    )
    made = scope.let(text)
    made.exact = made.exact or "linspace" not in text


@operation(2)
def matrices(scope):
    """Diagonals and triangles of the last two axes."""
    x = scope.value("number", least=1)
    texts = [f"tf.linalg.diag({x})"]
    if x.rank > 1 and x.shape[-2] == 3:
        texts += [f"tf.linalg.diag({x}, k=(-1, 1))"]
    if x.rank > 1:
        texts += [f"tf.linalg.band_part({x}, {scope.integer(-1, 1)}, 0)"]
        texts += [f"tf.linalg.diag_part({x})"]
    if x.rank > 1 and x.shape[-1] == x.shape[-2]:
        texts += [f"tf.linalg.set_diag({x}, tf.linalg.diag_part({x}) * 2)"]
    scope.let(scope.choice(texts), x)


@operation(2)
def solve(scope):
    """Inverses and factors of well-conditioned matrices."""
    x = scope.value("wide", least=2, where=lambda v: 0 not in v.shape)
    square = scope.let(
        f"tf.matmul(tf.tanh({x}), tf.tanh({x}), transpose_b=True) + "
        f"4 * tf.eye(tf.shape({x})[-2], dtype={x.type})"
    )
    name = scope.choice(
        ["inv", "cholesky", "det", "logdet", "slogdet", "solve"]
    )
    if name == "solve":
        side = f"tf.eye(tf.shape({x})[-2], dtype={x.type})"
        side += scope.choice(["", "[None]", "[:, :1]"])
        scope.let(f"tf.linalg.triangular_solve({square}, {side})")
        return
    if name == "slogdet":
        scope.unpack(f"tf.linalg.slogdet({square})", 2)
        return
    scope.let(f"tf.linalg.{name}({square})")


@operation(1)
def tridiagonal_solve(scope):
    """A right side for each matrix; the diagonals are well-conditioned."""
    x = scope.value("wide", least=2, where=lambda v: 0 not in v.shape)
    bands = f"tf.tanh({x}[..., None, :, 0]) + [[0], [4], [0]]"
    scope.let(f"tf.linalg.tridiagonal_solve({bands}, {x})")


def _count(value):
    count = 1
    for size in value.shape:
        count *= size
    return count


def _without(shape, axis):
    axis %= len(shape)
    return shape[:axis] + shape[axis + 1 :]
