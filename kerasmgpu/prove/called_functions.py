"""Finds the functions that a written step runs, and where it runs them."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from kerasmgpu.flops.step_flops import layer_of
from kerasmgpu.memory.inferred_shapes import Static
from kerasmgpu.memory.written_function import (
    WrittenFunction,
    WrittenNode,
)
from kerasmgpu.memory.written_step import WrittenStep
from kerasmgpu.partitioner.step.definitions import is_cluster

ARGUMENT = "_Arg"
"""Type of the nodes that stand for a function's arguments."""

HOST = "host"
"""Stands for the device of a node that runs on the host, and its memory."""


@dataclasses.dataclass(frozen=True)
class Called:
    """A function as one node calls it.

    Attributes:
        path: Names of the nodes that call it, from the step's function on, each
            with the number of the body: the same on all workers.
        function: Its `WrittenFunction`, with shapes of this call.
        device: Device of nodes that name none: the caller's.
        times: How often a step runs it; unknown rounds of loops are
            `ASSUMED_SIZE`.
        is_compiled: Whether XLA compiles it.
    """

    path: tuple[tuple[str, int], ...]
    function: WrittenFunction
    device: str
    times: int
    is_compiled: bool

    def device_of(self, node: WrittenNode) -> str:
        """Returns the device that a node asks for."""
        return device_in(node.device or self.device)


def device_in(name: str) -> str:
    """Returns `"GPU:0"` for the device's full name; `HOST` for a CPU, or none."""
    kind, _, number = name.rpartition("device:")[2].partition(":")
    return f"{kind}:{number}" if kind == "GPU" else HOST


def layer_named(name: str, paths: Collection[str]) -> str:
    """Returns the layer of a written node, whose name begins with where it runs.

    Args:
        paths: Paths of the model's layers; see `StepFlops.by_layer`.
    """
    place, _, rest = name.partition("/")
    if place == "partition":
        return "rows and their sizes"
    return layer_of(rest, paths) if rest else name


def called_by(step: WrittenStep) -> Iterator[Called]:
    """Yields the step's function, and each function that it calls, callers first."""
    waiting = [Called((), step.main, HOST, 1, False)]
    while waiting:
        called = waiting.pop(0)
        yield called
        for node in called.function.nodes:
            waiting += inside(step, called, node)


def inside(
    step: WrittenStep, called: Called, node: WrittenNode
) -> list[Called]:
    """Returns the functions that a node calls; empty for other nodes."""
    names = step.bodies(node)
    if not names:
        return []
    attributes = node.definition.attr
    if is_loop(node):
        names = [attributes["cond"].func.name, *names]
    given = arguments_of(called, node)
    times = called.times
    if is_loop(node):
        times *= step.rounds_of(node)
    is_compiled = called.is_compiled or is_cluster(node.definition)
    return [
        Called(
            (*called.path, (node.name, number)),
            step.function(name, given),
            node.device or called.device,
            times,
            is_compiled,
        )
        for number, name in enumerate(names)
    ]


def is_loop(node: WrittenNode) -> bool:
    """Whether a node that calls functions is a loop."""
    return node.type.endswith("While")


def inputs_of_bodies(node: WrittenNode) -> Sequence[tuple[int, int]]:
    """Returns the inputs that are arguments of the functions that a node calls."""
    is_branch = not is_loop(node) and not node.type.endswith("PartitionedCall")
    return node.inputs[1:] if is_branch else node.inputs


def arguments_of(called: Called, node: WrittenNode) -> list[Static]:
    """Returns type and shape of each argument of a node's functions."""
    nodes = called.function.nodes
    return [nodes[n].outputs[index] for n, index in inputs_of_bodies(node)]


def in_order(nodes: Sequence[WrittenNode]) -> list[int]:
    """Returns the numbers of nodes, each behind those that it waits for."""
    needs = [{*node.controls, *(n for n, _ in node.inputs)} for node in nodes]
    followers: list[list[int]] = [[] for _ in nodes]
    for number, sources in enumerate(needs):
        for source in sources:
            followers[source].append(number)
    ready = [number for number, sources in enumerate(needs) if not sources]
    ordered = []
    while ready:
        number = ready.pop()
        ordered.append(number)
        for follower in followers[number]:
            needs[follower].discard(number)
            if not needs[follower]:
                ready.append(follower)
    return ordered
