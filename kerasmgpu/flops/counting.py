"""Counts the operations of all nodes of a step."""

import collections
from collections.abc import Mapping
from types import MappingProxyType

from kerasmgpu.flops import operations
from kerasmgpu.flops.recomputation import recomputed
from kerasmgpu.flops.step_flops import Product, StepFlops
from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.step import loop_rounds, sizes
from kerasmgpu.partitioner.step.graph import Graph, Node
from kerasmgpu.partitioner.step.recompute import is_backward_name
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.sizes import SizeLike


def count(
    graph: Graph, parts: Mapping[Node, int] = MappingProxyType({})
) -> StepFlops:
    """Counts the operations of a step; runs nothing.

    Args:
        graph: `partitioner.step.graph.Graph` of the step as one device runs it, with
            shapes that `partitioner.planning.facts` inferred: `program.trace.graph`.
        parts: Maps nodes to `Product.parts`, where devices divide them.
    """
    walk = _Walk(recomputed(graph), parts)
    walk.run(graph, 1, False, False)
    return StepFlops(walk.products, walk.uncounted, walk.elementwise)


class _Walk:
    """Collects the products of a graph and of the bodies in it.

    Args:
        again: Nodes that recompute the forward pass.
        parts: See `count`.
    """

    def __init__(self, again: set[Node], parts: Mapping[Node, int]) -> None:
        self.products: list[Product] = []
        self.uncounted: collections.Counter[str] = collections.Counter()
        self.elementwise: collections.Counter[str] = collections.Counter()
        self._again, self._parts = again, parts
        self._rounds: dict[Node, SizeLike] = {}

    def run(
        self, graph: Graph, times: SizeLike, in_backward: bool, again: bool
    ) -> None:
        """Collects the products of a graph that runs `times` times a step.

        Args:
            times: Integer or `Size`, how often the graph runs in a step.
            in_backward: Whether it is a body of a node of the backward pass.
            again: Whether it is a body of a node that recomputes.
        """
        for node in graph.nodes:
            backward = in_backward or is_backward_name(node.name)
            repeats = again or node in self._again
            traits = node.traits
            if Trait.LOOP in traits:
                rounds = times * self._rounds_of(node)
                self.run(node.bodies[1], rounds, backward, repeats)
            elif node.bodies:
                self._run_branch(node, times, backward, repeats)
            else:
                self._add(node, times, backward, repeats)

    def _rounds_of(self, loop: Node) -> SizeLike:
        """Returns the most rounds that a loop can run.

        A new symbol stands for them if they depend on values.
        """
        rounds = loop_rounds.rounds_of(loop, self._rounds)
        if rounds is None:
            name = loop.name
            if is_backward_name(name):
                name = name.rsplit("/", 1)[0]
            rounds = sizes.of(
                sizes.Symbol(f"rounds of {name}", (loop.outputs[0], 0))
            )
        self._rounds[loop] = rounds
        return rounds

    def _run_branch(
        self, node: Node, times: SizeLike, backward: bool, again: bool
    ) -> None:
        """Counts the branch with most operations, and not the others."""
        walks = []
        for body in node.bodies:
            walk = _Walk(self._again, self._parts)
            walk.run(body, times, backward, again)
            walks.append(walk)
        most = max(walks, key=lambda walk: walk.size)
        self.products += most.products
        self.uncounted += most.uncounted
        self.elementwise += most.elementwise

    @property
    def size(self) -> int:
        """Number of operations, with 64 for each unknown size."""
        cost = CostModel()
        return sum(cost.value_of(one.flops) for one in self.products)

    def _add(
        self, node: Node, times: SizeLike, backward: bool, again: bool
    ) -> None:
        if operations.has_rule(node):
            flops = operations.flops_of(node)
            if flops is None:
                self.uncounted[node.type] += 1
            elif flops != 0:
                self.products.append(
                    Product(
                        node.name,
                        operations.dtype_of(node),
                        flops * times,
                        backward,
                        again,
                        self._parts.get(node, 1),
                    )
                )
        elif operations.is_uncounted(node):
            self.uncounted[node.type] += 1
        elif operations.is_elementwise(node):
            self.elementwise[node.type] += 1
