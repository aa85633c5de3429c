"""How a program was partitioned, in numbers."""

import collections

from kerasmgpu.partitioner.kinds import is_local


def counts(program):
    """How many operations of the one-device step run how on the replicas.

    Operations in bodies of loops and branches count once each. What is left of
    `operations` works on whole values that need no communication: constants,
    variables, optimizers' updates.

    Args:
        program: `program.Program`.

    Returns:
        `(operations, with_rule, gathered, types)`: the number of all
        operations; of those that each replica runs on its own rows or its own
        part of a sum; of those without a rule, for which rows were gathered;
        and a `collections.Counter` of the types of the latter.
    """
    operations, with_rule = 0, 0
    types = collections.Counter()
    for node, plan in _planned(program.trace.graph, program.plans):
        operations += 1
        if not plan.rule:
            types[node.type] += 1
        elif any(map(is_local, (*plan.wants, *plan.gives))):
            with_rule += 1
    return operations, with_rule, sum(types.values()), types


def _planned(graph, plans):
    """All nodes of a graph and of what it holds, with their plans."""
    for node in graph.nodes:
        plan = plans.nodes.get(node)
        if plan is None:  # An input.
            continue
        yield node, plan
        for body, planned in zip(node.bodies, plan.details or ()):
            yield from _planned(body, planned)
