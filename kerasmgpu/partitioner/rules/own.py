"""Sums over a replica's own rows, where these are asked for instead of all.

`sum_of_rows` is a sum of the one-device step that is marked: partitioned, it
gives each replica the sum of its own rows. What is computed from such a value is
a replica's own as well; a variable that is changed by it gets the mean.
"""

import dataclasses

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from kerasmgpu.partitioner.kinds import REPLICATED, Own, Partial, Sharded

_MARK = "_kerasmgpu_own"


def sum_of_rows(x, axes):
    """Sum of `x` over axes, which stay with size 1, of a replica's own rows.

    On one device, and where it is run eagerly, the rows are all rows.
    """

    @tf.custom_gradient
    def total(x):
        with _marked():
            result = tf.reduce_sum(x, axes, keepdims=True)
        return result, lambda gradient: spread(gradient, x, axes)

    return total(x)


def spread(value, like, axes):
    """A replica's own value in the place of each element that it is a sum of."""

    @tf.custom_gradient
    def everywhere(value):
        with _marked():
            # `tf.ones_like` would be a constant, of which nothing is one's own.
            result = value * tf.raw_ops.OnesLike(x=like)
        return result, lambda gradient: sum_of_rows(gradient, axes)

    return everywhere(value)


def _marked():
    """A scope whose operations are marked."""
    mark = attr_value_pb2.AttrValue(b=True)
    return tf.compat.v1.get_default_graph()._attr_scope({_MARK: mark})


def is_own(node, kinds):
    """Whether a node is to be planned by `plan`."""
    return node.attr(_MARK) or any(isinstance(kind, Own) for kind in kinds)


def plan(node, kinds, planned):
    """What is computed from own values is own.

    Args:
        node: The node.
        kinds: Kinds of its inputs.
        planned: Function from kinds to the plan of the node.

    Returns:
        A `Plan`.
    """
    is_marked = node.attr(_MARK)
    rows = [kind.rows for kind in kinds if isinstance(kind, (Own, Sharded))]
    if not rows:
        return planned(kinds)
    own = Own(rows[0])
    if is_marked and node.type == "Sum":
        plan = planned(kinds)
        if isinstance(plan.gives[0], Partial):
            plan = dataclasses.replace(plan, gives=(own,))
        return plan
    # A part of a sum is what a replica's own rows give.
    of_own = [
        isinstance(kind, Own) or (is_marked and isinstance(kind, Partial))
        for kind in kinds
    ]
    plan = planned(
        [REPLICATED if one else kind for one, kind in zip(of_own, kinds)]
    )
    if not plan.rule or node.is_stateful or node.bodies:
        return plan
    return dataclasses.replace(
        plan,
        wants=tuple(
            own if one and want == REPLICATED else want
            for one, want in zip(of_own, plan.wants)
        ),
        gives=tuple(own if kind == REPLICATED else kind for kind in plan.gives),
    )
