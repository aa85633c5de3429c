"""Which partial values are summed together, and when.

A node's level is the number of sums on the longest path to it. Nodes are
written level by level, so that all parts of the sums that a level needs are
there when the first of them is made: they are one reduction. What no sum needs,
such as an optimizer's updates, comes last, and all gradients are summed
together, in the order in which the backward pass makes them.
"""

import functools

import tensorflow as tf

from kerasmgpu.partitioner.graph import Tensor
from kerasmgpu.partitioner.kinds import PARTIAL, REPLICATED, Own, Partial


class Sums:
    """The sums of one function.

    Args:
        build: The `building.Build` of the function.
    """

    def __init__(self, build):
        self._build = build

    def whole(self, tensor):
        """References to the whole value of a partial tensor."""
        build = self._build
        group = self._group(tensor)
        for by in dict.fromkeys(build.natural(other).by for other in group):
            alike = [t for t in group if build.natural(t).by == by]
            wide = [self._widened(one) if by == "sum" else one for one in alike]
            totals = build.replicas.reduce(build, wide, by)
            build.sent += [(one, "summed") for one in wide]
            for one, total, references in zip(alike, wide, totals):
                references = self._cast(references, total.dtype, one.dtype)
                build.give(one, REPLICATED, references)
        return build.want(tensor, REPLICATED)

    def _widened(self, tensor):
        """A partial tensor with the same parts, in 32 bits at least.

        See `graph.Tensor.is_narrow`.
        """
        build = self._build
        if not tensor.is_narrow or build.replicas.total == 1:
            return tensor
        wide = Tensor(tensor.node, tensor.index, tf.float32, tensor.static)
        wide.shape = tensor.shape
        parts = self._cast(build.parts(tensor), tensor.dtype, wide.dtype)
        build.give(wide, PARTIAL, parts)
        return wide

    def _cast(self, references, source, target):
        """References by replica to values that are cast where they are."""
        build = self._build
        if source == target:
            return references
        if len(set(references)) == 1:
            place = build.place_of(references[0])
            return build.same(build.cast(references[0], source, target, place))
        return [
            build.cast(reference, source, target, place)
            for place, reference in enumerate(references)
        ]

    @functools.cached_property
    def nodes(self):
        """The nodes of the graph, each after what it needs, level by level."""
        return sorted(self._build.graph.nodes, key=self._levels.get)

    @functools.cached_property
    def _levels(self):
        """`{node: level}`; infinite for what comes last."""
        levels = {}
        for node in self._build.graph.nodes:
            before = [levels.get(other, 0) for other in node.needs]
            before += [
                levels.get(tensor.node, 0) + 1
                for tensor in self._sums_for(node)
            ]
            levels[node] = max(before, default=0)
        needed = self._needed_for_sums()
        return {
            node: level if not level or node in needed else _LAST
            for node, level in levels.items()
        }

    def _needed_for_sums(self):
        """Nodes that come before a sum, of those that other nodes need."""
        waiting = [
            tensor.node
            for node in self._build.graph.nodes
            for tensor in self._sums_for(node)
        ]
        needed = set()
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting += node.needs
        return needed

    def _sums_for(self, node):
        """Partial inputs that a node needs whole."""
        plans = self._build.plans.nodes
        plan = plans.get(node)
        return [
            tensor
            for tensor, want in zip(node.inputs, plan.wants if plan else ())
            if not isinstance(want, (Own, Partial)) and self._is_partial(tensor)
        ]

    def _is_partial(self, tensor):
        plan = self._build.plans.nodes.get(tensor.node)
        return plan is not None and isinstance(
            plan.gives[tensor.index], (Own, Partial)
        )

    @functools.cached_property
    def _needed_at(self):
        """`{tensor: level}` of the first node that needs a sum."""
        first = {}
        for node in self.nodes:
            for tensor in self._sums_for(node):
                first.setdefault(tensor, self._levels[node])
        for tensor in self._build.whole_outputs:
            if self._is_partial(tensor):
                first.setdefault(tensor, _LAST)
        return first

    def _group(self, tensor):
        """All that is summed together with a tensor, in the order of the graph."""
        build = self._build
        level = self._needed_at.get(tensor)
        group = [
            other
            for other, at in self._needed_at.items()
            if at == level
            and build.is_written(other)
            and not build.has(other, REPLICATED)
        ]
        return sorted(
            dict.fromkeys([tensor, *group]),
            key=lambda t: (self._made.get(t.node, -1), t.index),
        )

    @functools.cached_property
    def _made(self):
        """`{node: position}`, in the order in which nodes are written."""
        return {node: position for position, node in enumerate(self.nodes)}


_LAST = float("inf")
"""Level of what no sum needs."""
