"""The first run of a program: one device compiles, and the others load.

All devices would miss what XLA has compiled at the same time. TensorFlow keeps
compiled functions for other devices of the same type, so in a first run each
replica's cluster waits for the one before, which is the same function.
"""

from collections.abc import Sequence

from tensorflow.core.framework import function_pb2

from kerasmgpu.partitioner.ir.lowered import Cluster


def in_turns(
    function: function_pb2.FunctionDef, clusters: Sequence[Cluster]
) -> function_pb2.FunctionDef | None:
    """Returns a function whose devices compile one after the other.

    Paths lead from a cluster to those of higher levels only, so clusters of one
    level can wait for one another.

    Args:
        function: `FunctionDef` of all replicas.
        clusters: Its clusters.

    Returns:
        `FunctionDef` of another name, or `None` where no two clusters are equal.
    """
    before: dict[str, str] = {}
    last: dict[tuple[int, str], str] = {}
    for cluster in clusters:
        key = cluster.level, cluster.function
        if key in last:
            before[cluster.call] = last[key]
        last[key] = cluster.call
    if not before:
        return None
    made = function_pb2.FunctionDef()
    made.CopyFrom(function)
    made.signature.name += "_first"
    for node in made.node_def:
        if node.name in before:
            node.input.append(f"^{before[node.name]}")
    return made
