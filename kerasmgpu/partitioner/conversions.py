"""How a tensor in one kind becomes one in another.

Whole rows from shares and sums from parts need communication; the rest does not.
"""

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner import sizes
from kerasmgpu.partitioner.kinds import (
    REPLICATED,
    Kept,
    ListOf,
    LocalSizes,
    Own,
    Partial,
    Sharded,
)
from kerasmgpu.partitioner.places import HOST
from kerasmgpu.partitioner.rules import table


def converted(build, tensor, kind):
    """References to a tensor in another kind than it was written in.

    Args:
        build: The `building.Build` of the function.
        tensor: `graph.Tensor`.
        kind: The kind that is wanted.

    Returns:
        A sequence with one reference per replica of this process.
    """
    if isinstance(kind, LocalSizes):
        return _local_sizes(build, tensor, kind)
    if isinstance(kind, ListOf):
        return build.given(tensor)
    if isinstance(kind, Sharded):
        return _made_locally(build, tensor, kind) or _taken(build, tensor, kind)
    if isinstance(kind, Own):
        return _own(build, tensor)
    if isinstance(kind, Partial):
        return _as_part(build, tensor, kind)
    return _whole(build, tensor)


def _whole(build, tensor):
    """The whole value of a tensor, wherever it is needed."""
    if not build.is_written(tensor):
        return build.same(build.sizes.vector(tensor.value, tensor.dtype))
    kind = build.natural(tensor)
    if isinstance(kind, ListOf):
        return build.given(tensor)
    if isinstance(kind, Kept):
        raise InputError(
            f"{tensor} is what cuDNN keeps for a gradient on each GPU, and "
            "can't be put together. Received: a step that reads it; give its "
            "layer use_cudnn=False."
        )
    if isinstance(kind, (Own, Partial)):
        return build.sums.whole(tensor)
    if tensor in build.plans.free:
        return build.run_whole(tensor.node)[tensor.index]
    build.sent.append((tensor, "gathered"))
    return build.replicas.gather(build, tensor, kind)


def _own(build, tensor):
    """A part of a sum, or a whole value, as what a replica's own rows give."""
    if build.is_written(tensor) and isinstance(build.natural(tensor), Partial):
        return build.given(tensor)
    return build.want(tensor, REPLICATED)


def _as_part(build, tensor, kind):
    """A whole value as a part of a sum: the first of all replicas has it.

    As a part of a maximum or a minimum all have it.
    """
    whole = build.want(tensor, REPLICATED)
    if kind.by != "sum":
        return whole
    attributes = {"T": tensor.dtype}
    return [
        whole[place]
        if build.replicas.first + place == 0
        else build.op("ZerosLike", [whole[place]], attributes, place)[0]
        for place in range(build.replicas.num)
    ]


# A replica's rows of a whole value --------------------------------------------


def _made_locally(build, tensor, sharded):
    """A replica's rows made by the operation that makes all rows, or `None`.

    A mask that is drawn, compared and cast is drawn, compared and cast for
    one's own rows only.
    """
    node = tensor.node
    if node.type not in table.CHEAP and node.type not in table.GENERATORS:
        return None
    if node.controls or tensor.shape is None:
        return None
    if build.plans.kinds.get(tensor) != REPLICATED:
        return None
    if tensor.shape[sharded.axis] != sharded.size:
        return None
    axes = table.axes_of(node)
    labels = None if axes is None else axes.outputs[tensor.index]
    if labels is None or labels[sharded.axis] is None:
        return None
    plan = table.by_label(node, axes, labels[sharded.axis], sharded)
    if plan is None:
        return None
    made = build.run_on_each(node, plan, build.wanted(node, plan))
    return made[tensor.index]


def _taken(build, tensor, sharded):
    """Each replica's own rows, cut out of the whole."""
    whole = build.want(tensor, REPLICATED)
    return [
        _rows_of(build, tensor, whole[place], sharded, place)
        for place in range(build.replicas.num)
    ]


def _rows_of(build, tensor, reference, sharded, place):
    start, count = build.sizes.bounds(sharded, place)
    shape, axis = tensor.shape, sharded.axis
    if shape is not None and _may_be_one(shape[axis], sharded):
        return _rows_unless_one(
            build, tensor, reference, axis, sharded.size, start, count
        )
    if sharded.outer == 1:
        return sliced(build, reference, axis, start, count, tensor.dtype)
    # Several blocks of all rows.
    rows = sizes.product([sharded.rows.size, sharded.inner])
    blocks = (*shape[:axis], sharded.outer, rows, *shape[axis + 1 :])
    where = build.place_of(reference)
    split = build.reshape(
        reference, build.sizes.vector(blocks), tensor.dtype, where
    )
    part = sliced(build, split, axis + 1, start, count, tensor.dtype)
    local = build.sizes.local(sharded, place)
    own = build.sizes.with_axis(shape, axis, local)
    return build.reshape(part, own, tensor.dtype, where)


def sliced(build, reference, axis, start, count, dtype):
    """`count` elements of an axis from `start` on, where the value is."""
    end = build.sizes.plus(start, count)
    zero = build.sizes.scalar(0)
    first, last = (
        build.sizes.packed([zero] * axis + [bound]) for bound in (start, end)
    )
    strides = build.constant([1] * (axis + 1), tf.int32, HOST)
    in_front = (1 << axis) - 1  # These axes are taken wholly.
    return build.strided_slice(
        reference,
        first,
        last,
        strides,
        dtype,
        build.place_of(reference),
        begin_mask=in_front,
        end_mask=in_front,
    )


def _may_be_one(size, sharded):
    """Whether an axis may have one element that is stretched to all rows."""
    if size == sharded.size:
        return False
    return size == 1 or not isinstance(size, int)


def _rows_unless_one(build, tensor, reference, axis, size, start, count):
    """Rows of an axis; if it turns out to have one for all rows, that stays.

    One element for one row is that row: replicas without rows get none.
    """
    one, zero = build.sizes.scalar(1), build.sizes.scalar(0)
    given = [build.sizes.scalar(s) for s in (tensor.shape[axis], size)]
    is_one = build.sizes.op("Less", *given)
    start, count = (
        build.sizes.op("SelectV2", is_one, if_one, otherwise)
        for if_one, otherwise in ((zero, start), (one, count))
    )
    return sliced(build, reference, axis, start, count, tensor.dtype)


# Shapes of a replica's rows ---------------------------------------------------


def _local_sizes(build, tensor, kind):
    """A vector of sizes with each replica's own size at the sharded axis."""
    value, dtype, axis = tensor.value, tensor.dtype, kind.sharded.axis
    if tensor.shape == () or isinstance(value, int):
        return build.want(tensor, REPLICATED)  # An unknown rank.
    if kind.may_infer and _may_infer(value, axis):
        others = (*value[:axis], -1, *value[axis + 1 :])
        return build.same(build.constant(others, dtype, HOST))
    if kind.shape is not None and isinstance(value, tuple):
        # Of no rows nothing can be inferred.
        value = tuple(
            whole if entry == -1 else entry
            for entry, whole in zip(value, kind.shape)
        )
    result = []
    for place in range(build.replicas.num):
        own = build.sizes.local(kind.sharded, place)
        own = build.cast(own, tf.int32, dtype, HOST)
        if isinstance(value, tuple) and None not in value:
            entries = [build.sizes.scalar(entry, dtype) for entry in value]
            entries[axis] = own
            result.append(build.sizes.packed(entries, dtype))
        else:
            whole = build.want(tensor, REPLICATED)[0]
            result.append(_with_entry(build, whole, axis, own, dtype))
    return result


def _may_infer(value, axis):
    """Whether a reshape can find out the size of an axis by itself."""
    if not isinstance(value, tuple):
        return False
    others = value[:axis] + value[axis + 1 :]
    return sizes.are_integers(others) and all(size > 0 for size in others)


def _with_entry(build, vector, index, entry, dtype):
    """A vector with another entry."""
    indices = build.constant([[index]], tf.int32, HOST)
    updates = build.sizes.packed([entry], dtype)
    return build.op(
        "TensorScatterUpdate",
        [vector, indices, updates],
        {"T": dtype, "Tindices": tf.int32},
        HOST,
    )[0]
