"""Which partial values are summed together, and when.

When the first of several sums is needed, all that can be made by then and are
needed before the next one can be made go with it. At the end of a backward pass
these are all gradients, in the order in which it makes them; the sums of a
batch normalisation go by themselves, for layers wait for them.
"""

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
        self._made = {
            node: position for position, node in enumerate(build.graph.nodes)
        }
        self._first_needed = None

    def whole(self, tensor):
        """References to the whole value of a partial tensor."""
        if self._first_needed is None:
            self._first_needed = self._needs()
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

    def _needs(self):
        """Position of the first node that needs a partial tensor whole."""
        plans, first = self._build.plans, {}
        for node, plan in plans.nodes.items():
            for tensor, want in zip(node.inputs, plan.wants):
                source = plans.nodes.get(tensor.node)
                if source is None or isinstance(want, (Own, Partial)):
                    continue
                if isinstance(source.gives[tensor.index], (Own, Partial)):
                    first.setdefault(tensor, self._made[node])
        return first

    def _group(self, tensor):
        """All that is summed together with a tensor, in the order of the graph."""
        build, now = self._build, self._build.position
        made_later = [
            self._made[other.node]
            for other in self._first_needed
            if self._made[other.node] > now
        ]
        until = min(made_later, default=len(self._made))
        group = {
            other
            for other, first in self._first_needed.items()
            if self._made[other.node] < now
            and first < until
            and not build.has(other, REPLICATED)
        }
        return sorted(
            {tensor, *group},
            key=lambda t: (self._made.get(t.node, -1), t.index),
        )
