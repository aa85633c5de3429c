"""What planning asks of a graph, whatever the kinds of its inputs."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from kerasmgpu.partitioner.rules import reductions
from kerasmgpu.partitioner.rules.table import Axes
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record

_NODES = 16
"""Nodes of a stretch. Of more, some are planned anew more often; a pass looks at
each stretch."""


class Structure:
    """What planning asks of a graph, whatever the kinds of its inputs.

    Attributes:
        graph: The graph.
        outer: Its nodes, without those of loops and branches.
        consumers: For each tensor, the nodes that take it.
        primals: See `primals`.
        axes: What `table.axes_of` returns, for nodes that were asked for.
        assigned: For tensors that variables are assigned, and those that these
            are computed from, the handles of these variables.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outer = set(graph.nodes)
        self.consumers: dict[Tensor, list[Node]] = {}
        for node in graph.nodes:
            for tensor in node.inputs:
                self.consumers.setdefault(tensor, []).append(node)
        self.primals = primals(graph, self.consumers)
        self.axes: dict[Node, Axes | None] = {}
        self.assigned = _assigned(graph)


@dataclasses.dataclass(eq=False)
class Stretch:
    """Consecutive nodes of a graph, which are planned together.

    Attributes:
        number: Its number.
        nodes: The nodes.
        given: Tensors made before, whose kinds plans of the nodes depend on:
            inputs, and what these and outputs are gradients of.
        tensors: These, and the outputs.
        touched: The same as a set.
        makers: The nodes, and those that make `given`.
        is_kept: Whether it has no loops, branches and operations on lists, whose
            plans depend on more.
    """

    number: int
    nodes: list[Node]
    given: tuple[Tensor, ...]
    tensors: tuple[Tensor, ...]
    touched: frozenset[Tensor]
    makers: tuple[Node, ...]
    is_kept: bool


def stretches(structure: Structure) -> list[Stretch]:
    """Divides a graph into stretches."""
    return [
        _stretch(number, nodes, structure.primals)
        for number, nodes in enumerate(_runs(structure.graph.nodes))
    ]


def _runs(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Yields consecutive nodes; those with a `Record.control` are alone."""
    run: list[Node] = []
    for node in nodes:
        if node.type == "Input":
            continue
        is_alone = record(node.type).control is not None
        if run and (is_alone or len(run) == _NODES):
            yield run
            run = []
        run.append(node)
        if is_alone:
            yield run
            run = []
    if run:
        yield run


def _stretch(
    number: int, nodes: list[Node], primals: Mapping[Tensor, Tensor]
) -> Stretch:
    inputs = dict.fromkeys(one for node in nodes for one in node.inputs)
    outputs = dict.fromkeys(one for node in nodes for one in node.outputs)
    before = [primals[one] for one in (*inputs, *outputs) if one in primals]
    given = dict.fromkeys((*inputs, *before))
    given = {one: None for one in given if one not in outputs}
    makers = dict.fromkeys(one.node for one in given)
    return Stretch(
        number,
        nodes,
        tuple(given),
        (*given, *outputs),
        frozenset((*given, *outputs)),
        (*nodes, *(one for one in makers if one.type != "Input")),
        record(nodes[0].type).control is None,
    )


def _assigned(graph: Graph) -> dict[Tensor, list[Tensor]]:
    """Finds what is assigned to variables.

    With the inputs of elementwise operations that compute such values: gradients,
    for instance.

    Returns:
        Maps each tensor to the handles of the variables, the last one's first.
    """
    found: dict[Tensor, dict[Tensor, None]] = {}
    for node in reversed(graph.nodes):
        traits = node.traits
        if Trait.ASSIGNS in traits:
            handle, value, *_ = node.inputs
            found.setdefault(value, {})[handle] = None
        elif Trait.ELEMENTWISE in traits and len(node.outputs) == 1:
            (made,) = node.outputs
            if made in found:
                for tensor in node.inputs:
                    if tensor.shape == made.shape:
                        found.setdefault(tensor, {}).update(found[made])
    return {tensor: list(handles) for tensor, handles in found.items()}


def primals(
    graph: Graph, consumers: Mapping[Tensor, Sequence[Node]]
) -> dict[Tensor, Tensor]:
    """Finds the values that products compute gradients of.

    The gradient of `product(a, b)` by `a` is a product of its own gradient, of
    the same shape, and `b`.

    Returns:
        Maps each such gradient to the value, `a`.
    """
    found: dict[Tensor, Tensor] = {}
    number = {node: n for n, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if Trait.PRODUCT not in node.traits:
            continue
        (made, *_), tensors = node.outputs, node.inputs
        for factor in tensors:
            shapes = [one.shape for one in tensors if one is not factor]
            for other in consumers[factor]:
                if (
                    Trait.PRODUCT not in other.traits
                    or number[other] >= number[node]
                    or other.outputs[0].shape not in shapes
                ):
                    continue
                for one in other.inputs:
                    if one is not factor and one.shape == made.shape:
                        found.setdefault(made, one)
    before = {
        gradient: primal
        for made, one in found.items()
        for gradient, primal in _primals_before(made, one, consumers)
    }
    return before | found


def _primals_before(
    gradient: Tensor,
    primal: Tensor,
    consumers: Mapping[Tensor, Sequence[Node]],
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields gradients behind another one, and what they are gradients of.

    Of a value that is moved or repeated before it is a primal: its gradient is
    moved back, and summed over what was repeated.
    """
    before = {}
    while Trait.MOVES in primal.node.traits and primal.node.inputs:
        primal = primal.node.inputs[0]
        before.setdefault(primal.shape, primal)
    while True:
        behind = consumers.get(gradient, ())
        if len(behind) != 1 or len(behind[0].outputs) != 1:
            return
        (node,) = behind
        if not (moves(node) or reductions.is_sum(node)):
            return
        (gradient,) = node.outputs
        if gradient.shape in before and not moves(node):
            yield gradient, before[gradient.shape]


def moves(node: Node) -> bool:
    """Whether an operation leaves all elements of its input as they are."""
    return Trait.MOVES in node.traits or reductions.sums_nothing(node)
