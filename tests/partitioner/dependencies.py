"""Which nodes of a function wait for which."""

from kerasmgpu.partitioner.step.definitions import node_name


def sources_of(nodes, name):
    """Names of all nodes that a node waits for, directly or through others.

    Args:
        nodes: Dictionary of `NodeDef`s by name.
        name: String, the node.
    """
    found, waiting = set(), [name]
    while waiting:
        for source in map(node_name, nodes[waiting.pop()].input):
            if source in nodes and source not in found:
                found.add(source)
                waiting.append(source)
    return found
