"""Values that several processes must have to the same bits.

Copies of a variable stay the same because what they are changed by is the same.
Sums and gathered rows are, and so is what elementwise kernels make of them. Other
kernels add in an order of their own: what they make of whole values, if it
changes a variable, is taken from the first process. So is what has no cause in
the graph: draws without a seed, and what Python returns.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kerasmgpu.partitioner.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.kinds import REPLICATED
from kerasmgpu.partitioner.records import Trait, record

_SAFE = {Trait.ELEMENTWISE, Trait.GENERATES, Trait.MOVES}

if TYPE_CHECKING:
    from kerasmgpu.partitioner.planning import Plans


def find(graph: Graph, plans: "Plans") -> None:
    """Fills in `plans.must_agree`, also of loops and branches."""
    for node in graph.nodes:
        plan = plans.nodes.get(node)
        if plan is None:
            continue
        if node.is_stateful and Trait.COPIED not in record(node.type).traits:
            plans.must_agree.update(node.outputs)
        if Trait.UPDATES in record(node.type).traits:
            _mark(plans, node.inputs[1:])
        if node.bodies:
            _mark(plans, node.inputs)
            for body, inner in zip(node.bodies, plan.details):
                find(body, inner)
                _mark(inner, body.outputs)


def _mark(plans: "Plans", tensors: Iterable[Tensor]) -> None:
    """Marks what tensors come from, up to what is the same by itself."""
    waiting, seen = list(tensors), set()
    while waiting:
        tensor = waiting.pop()
        node = tensor.node
        if tensor in seen or node not in plans.nodes:
            continue
        seen.add(tensor)
        plan = plans.nodes[node]
        if (
            plan.gives[tensor.index] != REPLICATED
            or Trait.COPIED in record(node.type).traits
        ):
            continue  # Communication makes it the same.
        if tensor.dtype.is_integer or tensor.dtype.is_bool or _is_safe(node):
            waiting += node.inputs
        elif node.inputs and not node.bodies:
            plans.must_agree.add(tensor)


def _is_safe(node: Node) -> bool:
    return not _SAFE.isdisjoint(record(node.type).traits)
