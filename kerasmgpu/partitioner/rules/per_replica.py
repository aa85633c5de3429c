"""Sums over each replica's rows, for layers that ask for these sums.

`sum_of_rows` is a marked sum of the one-device step: partitioned, it gives each
replica the sum over its rows. Values computed from such a sum differ between
replicas as well (`kinds.PerReplica`). A variable that is assigned one gets the
mean of the replicas' values.
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
    """Sums `x` over `axes`; each replica sums only its own rows.

    The axes are kept, with size 1. On one device, and when it is run eagerly,
    it sums all rows.
    """

    @tf.custom_gradient
    def total(x: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        with _marked():
            result = tf.reduce_sum(x, axes, keepdims=True)
        return result, lambda gradient: spread(gradient, x, axes)

    return total(x)


def spread(value: tf.Tensor, like: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Broadcasts each replica's sum over `axes` to the shape of `like`.

    It is the gradient of `sum_of_rows`, and differentiable itself.
    """

    @tf.custom_gradient
    def everywhere(value: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        with _marked():
            # `tf.ones_like` would be a constant, which is the same everywhere.
            result = value * tf.raw_ops.OnesLike(x=like)
        return result, lambda gradient: sum_of_rows(gradient, axes)

    return everywhere(value)


def _marked() -> AbstractContextManager:
    """Returns a scope that marks the operations created in it."""
    mark = attr_value_pb2.AttrValue(b=True)
    return tf.compat.v1.get_default_graph()._attr_scope({_MARK: mark})


def applies(node: Node, kinds: Sequence[Kind]) -> bool:
    """Whether `plan` plans a node: it is marked, or has a per-replica input."""
    return node.attr(_MARK) or any(
        isinstance(kind, PerReplica) for kind in kinds
    )


def plan(
    node: Node, kinds: Sequence[Kind], planned: Callable[[list[Kind]], Plan]
) -> Plan:
    """Plans an operation that gives per-replica values.

    It is marked, or takes such values; see `applies`. Without sharded or
    per-replica inputs, and for operations without a rule, with state or with
    bodies, the plan is that of the other rules.

    Args:
        node: The node.
        kinds: Kinds of its inputs.
        planned: Function of kinds that plans the node by its other rules.
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
    # In a marked operation, a partial sum stays each replica's own sum.
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
