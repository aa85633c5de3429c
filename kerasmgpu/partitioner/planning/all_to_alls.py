"""Finds products that all-to-alls can divide along an axis of both factors."""

from collections.abc import Sequence

from kerasmgpu.partitioner.rules import table
from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import REPLICATED, MeshAxes, is_fixed
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.step.graph import Graph, Node
from kerasmgpu.partitioner.step.records import Trait

_FEWEST = 3
"""Devices. Between two, two all-to-alls send as much as gathering a factor."""


def first_to_exchange(
    graph: Graph,
    planned: Sequence[Plans],
    planning_axes: Sequence[MeshAxes],
    cost: CostModel,
) -> int | None:
    """Finds where a product gathers one of two values, if all-to-alls could serve.

    Args:
        planned: The `Plans` of the graph on each planning axis.

    Returns:
        Number of the first such planning axis; `None` without one.
    """
    found = (
        number
        for number, (plans, over) in enumerate(zip(planned, planning_axes))
        if cost.number_along(over) >= _FEWEST
        for node in graph.nodes
        if Trait.PRODUCT in node.traits
        and REPLICATED in plans.nodes[node].wants
        and all(is_fixed(plans.kinds[tensor]) for tensor in node.inputs)
        and shared_axis(node, cost.number_along(over)) is not None
    )
    return next(found, None)


def shared_axis(
    node: Node, number: int
) -> tuple[table.Axes, table.Label, int] | None:
    """Finds an axis that a product's factors and its output have, the last one.

    Args:
        number: Number of devices, which divide it into equal parts.

    Returns:
        The product's axes, the label of that one and its size.
    """
    axes = table.axes_of(node)
    if Trait.PRODUCT not in node.traits or axes is None or number < _FEWEST:
        return None
    labels = [*axes.inputs, axes.outputs[0]]
    for label, size in reversed([*axes.sizes_of_labels(node)]):
        if (
            len(node.inputs) == 2
            and all(its is not None and label in its for its in labels)
            and isinstance(size, int)
            and size % number == 0
        ):
            return axes, label, size
    return None
