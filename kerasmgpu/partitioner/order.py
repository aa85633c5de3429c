"""Orders of effects that data alone give on one device.

TensorFlow's automatic control dependencies order what happens to one variable,
or outside of TensorFlow. In a graph without them (`tf.compat.v1.wrap_function`)
an operation comes after another one because it takes its result, or the shape
of it. On replicas sizes come from the host and wait for nothing, so such orders
become control dependencies before the graph is simplified.
"""

OWN_STATE = frozenset(
    """
    CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNV2
    CudnnRNNV3 Multinomial ParameterizedTruncatedNormal RandomGamma
    RandomGammaGrad RandomPoisson RandomPoissonV2 RandomShuffle
    RandomStandardNormal RandomUniform RandomUniformInt TruncatedNormal
    """.split()
)
"""Operations without automatic control dependencies: each has a state that no
other one sees. Only the iterations of a loop share it (`regions.py`)."""

NO_STATE = frozenset(["Assert"])
"""Operations that are stateful by name; in any order they do the same."""


def write_down(graph):
    """Adds control dependencies for orders that only data give.

    Args:
        graph: `graph.Graph`, before anything is dropped from it.
    """
    ordered = _ordered_by_tensorflow(graph)
    for node in graph.nodes:
        if _is_stateful(node) and node not in ordered:
            node.controls = list(
                dict.fromkeys([*node.controls, *_before(node)])
            )
        for body in node.bodies:
            write_down(body)


def _ordered_by_tensorflow(graph):
    """Nodes that have automatic control dependencies: all of them must run."""
    found, waiting = set(), list(graph.effects)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            if node.type == "NoOp":  # The end of a function that was called.
                waiting += node.controls
    return found


def _before(node):
    """The nearest nodes before a node that can see its state."""
    states = _states(node)
    found, seen, waiting = [], set(), list(node.needs)
    while waiting:
        other = waiting.pop()
        if other in seen:
            continue
        seen.add(other)
        if _is_stateful(other) and not states.isdisjoint(_states(other)):
            found.append(other)
        else:
            waiting += other.needs
    return found


def _is_stateful(node):
    if node.bodies:
        return any(
            _is_stateful(inner) for body in node.bodies for inner in body.nodes
        )
    return node.is_stateful and node.type not in OWN_STATE | NO_STATE


def _states(node):
    """What an operation may change: resources; `None` is Python and files."""
    states = {
        tensor for tensor in node.inputs if tensor.dtype.name == "resource"
    }
    return states | {None} if node.bodies or not states else states
