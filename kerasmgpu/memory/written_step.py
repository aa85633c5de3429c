"""Writes a step for any number of replicas, which needn't exist."""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.memory import kernels
from kerasmgpu.memory.state_bytes import axis_to_shard
from kerasmgpu.memory.traced_step import TracedStep
from kerasmgpu.memory.value_sizes import ValueSizes, known_sizes
from kerasmgpu.memory.written_function import (
    Reference,
    Static,
    WrittenFunction,
    WrittenNode,
    is_backward_name,
)
from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.rules.kinds import Partial, is_of_variable
from kerasmgpu.partitioner.runtime.imagined import (
    ImaginedHandle,
    ImaginedReplicas,
)
from kerasmgpu.partitioner.runtime.one_device import container
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.sharded_variable import variable_of
from kerasmgpu.partitioner.step import loop_rounds
from kerasmgpu.partitioner.step.graph import Graph, Node
from kerasmgpu.partitioner.step.records import Trait, record
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE, bounds_of

ACTIVATIONS, CONSTANTS, GATHERED, GRADIENTS, WORKSPACE = (
    "activations",
    "constants",
    "gathered",
    "gradients",
    "workspace",
)
"""Categories of the bytes that are alive at the peak."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """The settings with which a step runs.

    Attributes:
        num_replicas: Integer, replicas of all workers.
        shard: One of `state_bytes.SHARDS`.
        micro_batches: Integer, parts in which a replica runs its rows.
        rows: Integer, rows of a global batch.
        num_workers: Integer, processes of the job.
        device_type: `"GPU"` or `"CPU"`. Replicas of a process share the memory
            of CPUs.
        min_shard_bytes: Integer, bytes from which on a variable is sharded.
    """

    num_replicas: int
    shard: str
    micro_batches: int
    rows: int
    num_workers: int
    device_type: str
    min_shard_bytes: int

    @property
    def num_local(self) -> int:
        """Number of replicas of each worker."""
        return self.num_replicas // self.num_workers

    @property
    def shares_memory(self) -> bool:
        """Whether a worker's replicas share one memory."""
        return self.device_type == "CPU"


class WrittenStep:
    """Writes a step, and its functions, as the first worker would run them.

    Args:
        step: `TracedStep`.
        setting: `Setting`.

    Attributes:
        jit_compile: Whether XLA compiles the step.
        arguments: List of a pair for each argument of the step: the
            `ImaginedHandle` of a captured tensor, or the number of the replica
            that gets a part of the batch; and the argument's `Static`.
        main: The `WrittenFunction` of the step.
        assumed: Names of sizes and loops that are unknown before the step
            runs; `ASSUMED_SIZE` was taken for each.
    """

    def __init__(self, step: TracedStep, setting: Setting) -> None:
        self._traced = step
        self._setting = setting
        self.jit_compile = step.jit_compile
        trace = step.program.trace.imagined(self._axis_of)
        replicas = self._replicas().split(setting.micro_batches)
        shapes = [
            (setting.rows, *shape[1:]) if shape else () for shape in step.shapes
        ]
        # With known shapes of the batch, other sizes are known, too.
        for leaf, shape in zip(trace.leaves, shapes):
            if leaf.shape is not None and None not in shape:
                leaf.static = leaf.shape = shape
        in_shares = (False,) * len(shapes)
        if not setting.shares_memory and not trace.sparse:
            in_shares = tuple(bool(shape) for shape in shapes)
        self._program = Program(trace, replicas, in_shares, first_batch=shapes)
        self._sizes = ValueSizes(
            known_sizes(trace.leaves, shapes), replicas.mesh.total
        )
        emitted = self._program.emitted()
        build = emitted.build
        self._library = {one.signature.name: one for one in build.library}
        self._values = build.values()
        self._functions: dict[Any, WrittenFunction] = {}
        self._rounds = dict(_loops(trace.graph, self._sizes, {}))
        self.assumed: set[str] = self._sizes.assumed
        self.arguments: list[tuple[ImaginedHandle | int, Static]] = []
        for leaf, shape, width, is_share in zip(
            trace.leaves, shapes, emitted.widths, in_shares
        ):
            for place in range(width):
                own = shape
                if is_share:
                    bounds = bounds_of(setting.rows, setting.num_replicas)
                    own = (bounds[place + 1] - bounds[place], *shape[1:])
                self.arguments.append((place, Static(leaf.dtype, own)))
        for handle, _ in build.captures.values():
            self.arguments.append((handle, self._static(handle)))
        self.main = self._function(
            build.library[-1], tuple(static for _, static in self.arguments)
        )
        self.main.categories = dict(self._categories())

    def _replicas(self) -> Replicas:
        setting = self._setting
        imagined = ImaginedReplicas(
            setting.num_local, setting.num_workers, setting.device_type
        )
        if setting.num_replicas == 1:
            return Replicas(imagined.mesh)
        return imagined

    def _axis_of(self, outer: Any) -> int | None:
        """Returns a captured variable's sharded axis; `None` if it is whole."""
        setting = self._setting
        variable = container(outer)
        if variable is None:
            variable = variable_of(outer)
        record_of = self._traced.record_of.get(id(variable))
        if record_of is None or outer.dtype != tf.resource:
            return None
        return axis_to_shard(
            record_of,
            setting.shard,
            setting.num_replicas,
            setting.min_shard_bytes,
        )

    def _static(self, handle: ImaginedHandle) -> Static:
        """Returns the `Static` of a captured tensor, as its device holds it."""
        tensor, axis = handle.variable.tensor, handle.variable.axis
        if tensor.dtype != tf.resource:
            rank = tensor.shape.rank
            shape = None if rank is None else tuple(tensor.shape)
            return Static(tensor.dtype, shape)
        data = getattr(tensor, "_handle_data", None)
        if data is None or not data.is_set or len(data.shape_and_type) != 1:
            return Static(tf.resource, None)
        (described,) = data.shape_and_type
        sizes = [size.size for size in described.shape.dim]
        if axis is not None:
            bounds = bounds_of(sizes[axis], self._setting.num_replicas)
            sizes[axis] = bounds[handle.place + 1] - bounds[handle.place]
        known = tuple(None if size < 0 else size for size in sizes)
        return Static(tf.resource, known, tf.as_dtype(described.dtype))

    # Functions ---------------------------------------------------------------

    def function(self, name: str, given: Sequence[Static]) -> WrittenFunction:
        """Returns the function `name` for arguments like `given`; cached."""
        key = name, tuple(given)
        if key not in self._functions:
            self._functions[key] = self._function(self._library[name], key[1])
        return self._functions[key]

    def _function(
        self,
        definition: Any,
        given: tuple[Static, ...],
    ) -> WrittenFunction:
        function = WrittenFunction(definition, given, self._shape)
        function.kept = kernels.kept(function.nodes)
        if self.jit_compile:
            function.fused = kernels.fused(function.nodes)
        return function

    def _shape(self, reference: str) -> tuple[int, ...] | None:
        one = self._values.get(reference)
        return None if one is None else self._sizes.shape_of(one)

    def bodies(self, node: WrittenNode) -> list[str]:
        """Returns the names of the functions that a node calls; often empty."""
        attributes = node.definition.attr
        names = [
            attributes[key].func.name
            for key in ("body", "f", "then_branch", "else_branch")
            if key in attributes
        ]
        if "branches" in attributes:
            names += [one.name for one in attributes["branches"].list.func]
        return [name for name in names if name in self._library]

    def rounds_of(self, loop: WrittenNode) -> int:
        """Returns a loop's rounds; `ASSUMED_SIZE` if they are unknown."""
        name = re.sub(r"_\d+$", "", loop.name)
        rounds = self._rounds.get(loop.name, self._rounds.get(name))
        if rounds is None:
            self.assumed.add(f"rounds of {loop.name}")
            return ASSUMED_SIZE
        return rounds

    # Memory ------------------------------------------------------------------

    @property
    def home(self) -> str:
        """Name of the first replica's memory."""
        return self.memory_of_place(0)

    def memory_of_place(self, place: int) -> str:
        """Returns the name of a replica's memory.

        Args:
            place: Integer, the replica's index among those of this worker.
        """
        if self._setting.shares_memory:
            return "host"
        return self._program.replicas.mesh.devices[
            place * self._setting.micro_batches
        ]

    def memory_of(self, node: WrittenNode) -> str:
        """Returns the name of the memory of a node's outputs.

        Empty if the node has no device; the caller then chooses.
        """
        if self._setting.shares_memory:
            return "host"
        if "GPU" in node.device:
            return node.device
        return "host" if node.device else ""

    def scratch(self, function: WrittenFunction, node: WrittenNode) -> int:
        """Returns the bytes that a kernel allocates besides its outputs.

        Only ring all-reduces are known to; 0 for all others.
        """
        if node.type != "CollectiveReduceV2":
            return 0
        if node.definition.attr["communication_hint"].s != b"ring":
            return 0
        # A member receives a copy of each part of the value but its own.
        size = function.group_size(node)
        return node.outputs[0].num_bytes * (size - 1) // size

    def _categories(self) -> Iterator[tuple[Reference, str]]:
        """Yields the `Reference`s of gathered weights and gradients.

        Each comes with its category, `GATHERED` or `GRADIENTS`.
        """
        for text, one in self._values.items():
            category = _category(one, text)
            if category and self.main.has(text):
                yield self.main.reference(text), category


def _category(one: Value, reference: str) -> str | None:
    tensor, kind = one.tensor, one.kind
    if not tensor.dtype.is_floating:
        return None
    if Trait.READS in record(tensor.node.type).traits:
        is_read = "ReadVariableOp:value" in reference
        return None if is_read or ":" not in reference else GATHERED
    if isinstance(kind, Partial) or "all_reduce" in reference:
        return GRADIENTS
    if is_of_variable(kind) and is_backward_name(tensor.node.name):
        return GRADIENTS
    return None


def _loops(
    graph: Graph, sizes: ValueSizes, earlier: dict[Node, Any]
) -> Iterator[tuple[str, int]]:
    """Yields the name and rounds of each loop of a graph, also nested ones.

    Takes `ASSUMED_SIZE` for unknown rounds, and adds their names to
    `sizes.assumed`.

    Args:
        graph: The `Graph`.
        sizes: `ValueSizes`.
        earlier: Rounds of the loops before; those found here are added.
    """
    for node in graph.nodes:
        if Trait.LOOP in record(node.type).traits:
            size = loop_rounds.rounds_of(node, earlier)
            rounds = 0 if size is None else sizes.value_of(size) or 0
            if rounds < 1:
                sizes.assumed.add(f"rounds of {node.name}")
                rounds = ASSUMED_SIZE
            earlier[node] = rounds
            yield node.name, rounds
        for body in node.bodies:
            yield from _loops(body, sizes, earlier)
