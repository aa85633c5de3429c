"""What rules of lists, loops and branches may ask of inference and planning."""

from collections.abc import Sequence
from typing import Any, Protocol

from kerasmgpu.partitioner.rules.kinds import Kind, ListOf
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.step.elements import Elements
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor


class Inference(Protocol):
    """Inference of shapes and values; see `facts.Inference`."""

    def infer(self, graph: Graph) -> None:
        """Runs one pass over a graph."""

    def infer_branch(self, graph: Graph) -> None:
        """Runs one pass over a body that may not run."""

    def elements(self, node: Node) -> Elements:
        """The `Elements` of the list that a node makes."""

    def lasting(self, known: Any) -> Any:
        """A shape or value; symbols that are local to a loop become `None`."""


class Planner(Protocol):
    """Planning of a graph; see `planner.Planner`.

    Attributes:
        lists: The list that a node makes, or that an input holds.
    """

    lists: dict[Node | Tensor, ListOf]

    def __call__(self, graph: Graph, kinds: Sequence[Kind]) -> Plans:
        """Plans a body whose inputs have these kinds."""
