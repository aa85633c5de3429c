"""Products that sum over common axes."""

from tests.partitioner.operations.table import operation

MOST_STRETCHED = 3
"""Most axes of a stack of matrices times one: with four, of which the second has
one entry, TensorFlow's oneDNN kernel writes over memory that is not its own
(tensorflow/tensorflow#117700)."""


@operation(4)
def dense(scope):
    """A matrix product with a constant, on any axis but the last."""
    x = scope.value("float", least=2)
    kernel = scope.constant((x.shape[-1], scope.integer(1, 3)), x.dtype)
    scope.let(f"tf.tensordot({x}, {kernel}, 1)", x)


@operation(3)
def matmul(scope):
    """Of any two that fit, either of them transposed."""
    x = scope.value("wide", least=2)
    left, right = scope.flag(), scope.flag()

    def fits(value):
        return (
            value.rank == x.rank
            and value.shape[:-2] == x.shape[:-2]
            and value.shape[-1 if right else -2] == x.shape[-2 if left else -1]
        )

    y = scope.alike(x, fits)
    scope.let(
        f"tf.matmul({x}, {y}, transpose_a={left}, transpose_b={right})", x, y
    )


@operation(2)
def broadcast_matmul(scope):
    """A stack of matrices times one matrix, or one times a stack."""
    x = scope.value("wide", least=3, most=MOST_STRETCHED)
    y = scope.alike(x, lambda v: v.rank == 2 and v.shape[0] == x.shape[-1])
    scope.let(f"tf.matmul({x}, {y})", x, y)


@operation(3)
def einsum(scope):
    """One axis of each is the same; what comes out is drawn."""
    x = scope.value("wide", least=1, most=3)
    y = scope.alike(x, lambda v: 1 <= v.rank <= 3 and _common(x, v))
    first, second = scope.choice(_common(x, y))
    left = list("abc"[: x.rank])
    right = list("def"[: y.rank])
    right[second] = left[first]
    letters = sorted(set(left + right))
    kept = [letters[n] for n in scope.permutation(len(letters))]
    kept = [letter for letter in kept if scope.integer(0, 2)][:4]
    if scope.chance(4):
        # `...` stands for the axes in front.
        scope.let(f"tf.einsum('...a,...a->...', {x}, {x})", x)
        return
    equation = f"{''.join(left)},{''.join(right)}->{''.join(kept)}"
    scope.let(f"tf.einsum({equation!r}, {x}, {y})", x, y)


@operation()
def of_itself(scope):
    """All rows with all rows, as an attention over the batch has it."""
    x = scope.value("wide", least=2, most=3)
    scope.let(f"tf.matmul({x}, {x}, transpose_b=True)", x)


def _common(one, two):
    return [
        (m, n)
        for m, size in enumerate(one.shape)
        for n, other in enumerate(two.shape)
        if size == other
    ]


@operation(1)
def cross(scope):
    """Of vectors of three elements."""
    x = scope.value("wide", least=1, most=MOST_STRETCHED)
    y = scope.constant((x.shape[-1], 3), x.dtype)
    scope.let(f"tf.linalg.cross(tf.sin({x} @ {y}), {x} @ {y})", x)
