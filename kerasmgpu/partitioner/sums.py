"""Which partial values are summed together, and when.

When the first of several sums is needed, all that can be made by then and are
needed before the next one can be made go with it. At the end of a backward pass
these are all gradients, in the order in which it makes them; the sums of a
batch normalisation go by themselves, for layers wait for them.
"""

from kerasmgpu.partitioner.kinds import REPLICATED, Own, Partial


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
            totals = build.replicas.reduce(build, alike, by)
            build.sent += [(one, "summed") for one in alike]
            for one, references in zip(alike, totals):
                build.give(one, REPLICATED, references)
        return build.want(tensor, REPLICATED)

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
