"""Sums over each replica's rows, where a layer asks for these instead of all.

`sum_of_rows` is a marked sum of the one-device step: partitioned, it gives each
replica the sum over its rows. What is computed from such a value differs between
replicas as well (`kinds.PerReplica`); a variable that it changes gets the mean.
"""

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from kerasmgpu.partitioner.rules.kinds import (
    REPLICATED,
    Kind,
    Partial,
    PerReplica,
    Sharded,
)
from kerasmgpu.partitioner.rules.table import Plan
from kerasmgpu.partitioner.step.graph import Node

_MARK = "_kerasmgpu_per_replica"

Gradient = Callable[[tf.Tensor], tf.Tensor]


def sum_of_rows(x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Sum of `x` over axes, which stay with size 1, of each replica's rows.

    On one device, and where it is run eagerly, the rows are all rows.
    """

    @tf.custom_gradient
    def total(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        with _marked():
            result = tf.reduce_sum(x, axes, keepdims=True)
        return result, lambda gradient: spread(gradient, x, axes)

    return total(x)


def spread(value: tf.Tensor, like: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Broadcasts a value per replica to the elements that it is a sum of."""

    @tf.custom_gradient
    def everywhere(value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        with _marked():
            # `tf.ones_like` would be a constant, which is the same everywhere.
            result = value * tf.raw_ops.OnesLike(x=like)
        return result, lambda gradient: sum_of_rows(gradient, axes)

    return everywhere(value)


def _marked() -> AbstractContextManager:
    """A scope whose operations are marked."""
    mark = attr_value_pb2.AttrValue(b=True)
    return tf.compat.v1.get_default_graph()._attr_scope({_MARK: mark})


def applies(node: Node, kinds: Sequence[Kind]) -> bool:
    """Whether a node is to be planned by `plan`."""
    return node.attr(_MARK) or any(
        isinstance(kind, PerReplica) for kind in kinds
    )


def plan(
    node: Node, kinds: Sequence[Kind], planned: Callable[[list[Kind]], Plan]
) -> Plan:
    """The plan of an operation on values per replica, which gives such values.

    Args:
        node: The node.
        kinds: Kinds of its inputs.
        planned: Function from kinds to the plan of the node.
    """
    is_marked = node.attr(_MARK)
    rows = [
        kind.rows for kind in kinds if isinstance(kind, (PerReplica, Sharded))
    ]
    if not rows:
        return planned(list(kinds))
    per_replica = PerReplica(rows[0])
    if is_marked and node.type == "Sum":
        plan = planned(list(kinds))
        if isinstance(plan.gives[0], Partial):
            plan = dataclasses.replace(plan, gives=(per_replica,))
        return plan
    # A part of a sum is the sum over a replica's rows.
    differs = [
        isinstance(kind, PerReplica)
        or (is_marked and isinstance(kind, Partial))
        for kind in kinds
    ]
    plan = planned(
        [REPLICATED if one else kind for one, kind in zip(differs, kinds)]
    )
    if not plan.rule or node.is_stateful or node.bodies:
        return plan
    return dataclasses.replace(
        plan,
        wants=tuple(
            per_replica if one and want == REPLICATED else want
            for one, want in zip(differs, plan.wants)
        ),
        gives=tuple(
            per_replica if kind == REPLICATED else kind for kind in plan.gives
        ),
    )
