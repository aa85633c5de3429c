"""The rows of a parallel function: shares of the inputs, outputs in order.

Shares are those of `kerasmgpu.shares`, but no copy has to run on no rows.
"""

import collections.abc

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.scaling import per_replica_batch_sizes
from kerasmgpu import shares as split

DIFFERENT_ROWS = "Batched inputs of a parallel function need the same rows"
"""How the message about inputs that don't fit each other begins."""

OTHER_ROWS = "A parallel function returns one row per row that it is given"
"""How the message about an output that can't be concatenated begins."""


def common_rows(named):
    """Rows of the batch: an integer where a static shape tells, or a tensor.

    Args:
        named: List of `(name, tensor)`, all inputs that are split.
    """
    known = [(name, split.static_rows(leaf)) for name, leaf in named]
    sizes = {size for _, size in known if size is not None}
    if len(sizes) > 1:
        listed = ", ".join(f"{name} with {size}" for name, size in known)
        raise InputError(
            f"{DIFFERENT_ROWS}. Received: {listed}; mark what is no batch "
            "with kerasmgpu.parallel.shared(...)"
        )
    (first, leaf), rows = named[0], sizes.pop() if sizes else None
    if rows is None:
        rows = split.num_rows(leaf)
    for name, leaf in named:
        if split.static_rows(leaf) is None:
            tf.debugging.assert_equal(
                split.num_rows(leaf),
                rows,
                f"{DIFFERENT_ROWS}. Received: {name} with more or fewer rows "
                f"than {first}; mark what is no batch with "
                "kerasmgpu.parallel.shared(...)",
            )
    return rows


def shares_of(rows, num_replicas):
    """First row, end row and rows to keep of every share that is run.

    Where the number of rows is known, empty shares are not run. Where it is
    not, the copy of an empty share runs on a row of another share and its
    output is dropped: many functions, and their gradients, are undefined for
    no rows.
    """
    if isinstance(rows, int):
        sizes = per_replica_batch_sizes(rows, num_replicas) if rows else [0]
        shares, start = [], 0
        for size in sizes:
            if size or not rows:
                shares.append((start, start + size, size))
            start += size
        return shares
    shares = []
    for index in range(num_replicas):
        start, end = split.share_bounds(rows, index, num_replicas)
        kept = end - start
        start = tf.maximum(tf.minimum(start, rows - 1), 0)
        end = tf.minimum(tf.maximum(end, start + 1), rows)
        shares.append((start, end, kept))
    return shares


def between(value, start, end):
    """Rows `start` to `end` of a tensor, dense or sparse."""
    if isinstance(value, tf.SparseTensor):
        return split.sparse_rows(value, start, end)
    return value[start:end]


def require_tensors(outputs):
    """Refuses outputs that can't be concatenated."""
    for name, leaf in zip(_paths(outputs), tf.nest.flatten(outputs)):
        if leaf is None:
            raise _other_rows(name, "which is None")
        if not split.has_rows(leaf):
            raise _other_rows(name, "which is a scalar")


def checked(outputs, rows, kept):
    """The `kept` rows of a copy's outputs, which have `rows` rows each."""
    leaves = []
    for name, leaf in zip(_paths(outputs), tf.nest.flatten(outputs)):
        static = split.static_rows(leaf)
        if static is None or not isinstance(rows, int):
            error = _other_rows(name, "with more or fewer rows")
            tf.debugging.assert_equal(split.num_rows(leaf), rows, str(error))
        elif static != rows:
            raise _other_rows(name, f"with {static} rows for {rows}")
        leaves.append(leaf if kept is rows else between(leaf, 0, kept))
    return tf.nest.pack_sequence_as(outputs, leaves)


def _other_rows(name, culprit):
    return InputError(
        f"{OTHER_ROWS}. Received: output{name}, {culprit}; return a value "
        "per row, and sum or average it outside"
    )


def joined(*shares):
    """The outputs of all copies, in the order of the rows."""
    if isinstance(shares[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(shares))
    return tf.concat(shares, 0)


def input_names(inputs):
    """Names of all leaves of `(args, kwargs)`, for messages."""
    args, kwargs = inputs
    named = [(f"argument {index}", arg) for index, arg in enumerate(args)]
    named += [(name, kwargs[name]) for name in sorted(kwargs)]
    return [path for name, nest in named for path in _paths(nest, name)]


def described(inputs):
    """Names and shapes of all leaves of `(args, kwargs)`, for messages."""
    named = zip(input_names(inputs), tf.nest.flatten(inputs))
    listed = [
        f"{name} of shape {leaf.shape}"
        if hasattr(leaf, "shape")
        else f"{name}={leaf!r}"
        for name, leaf in named
    ]
    return ", ".join(listed) or "no inputs"


def _paths(nest, prefix=""):
    """Names of a nest's leaves, in the order of `tf.nest.flatten`."""
    if isinstance(nest, collections.abc.Mapping):
        children = [(key, nest[key]) for key in sorted(nest)]
    elif isinstance(nest, (list, tuple)):
        children = list(enumerate(nest))
    else:
        return [prefix]
    return [
        path
        for key, child in children
        for path in _paths(child, f"{prefix}[{key!r}]")
    ]
