"""Interfaces of inference and planning that rules of lists and loops use."""

from collections.abc import Sequence
from typing import Any, Protocol

from kerasmgpu.partitioner.rules.kinds import Kind, ListOf
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.step.elements import Elements
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.sizes import Value


class Inference(Protocol):
    """Infers facts of tensors; see `facts.Inference`."""

    def infer(self, graph: Graph) -> None:
        """Runs one pass over a graph."""

    def infer_branch(self, graph: Graph) -> None:
        """Runs one pass over a branch's body.

        It might not run, so no rows are recorded as equal.
        """

    def elements(self, node: Node) -> Elements:
        """Returns the facts about all elements of the list that a node makes."""

    def join_lengths(self, one: Value, other: Value) -> None:
        """Joins lengths of inputs that are equal, entry by entry."""

    def lasting(self, known: Any) -> Any:
        """Returns a shape or value with `None` for sizes local to a body."""


class Planner(Protocol):
    """Plans graphs; see `planner.Planner`.

    Attributes:
        lists: Kinds of lists, by the node that makes the list or the tensor
            that holds it.
    """

    lists: dict[Node | Tensor, ListOf]

    def __call__(self, graph: Graph, kinds: Sequence[Kind]) -> Plans:
        """Plans a body, given the kinds of its inputs."""

    def is_taken(self, node: Node, number: int, kind: Kind | None) -> bool:
        """Whether other mesh axes divide the same axis of an output."""
