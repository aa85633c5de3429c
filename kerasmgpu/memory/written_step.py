"""Writes a step for any number of replicas, which needn't exist."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.division import AxesToShard
from kerasmgpu.memory import kernels
from kerasmgpu.memory.inferred_shapes import Static
from kerasmgpu.memory.state_bytes import Setting, VariableRecord
from kerasmgpu.memory.traced_step import TracedStep
from kerasmgpu.memory.value_sizes import ValueSizes
from kerasmgpu.memory.written_function import (
    Reference,
    WrittenFunction,
    WrittenNode,
)
from kerasmgpu.partitioner.ir.instructions import Value
from kerasmgpu.partitioner.ir.lowered import Lowered
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.rules.kinds import Partial, is_of_variable
from kerasmgpu.partitioner.runtime.function import recomputing
from kerasmgpu.partitioner.runtime.imagined import (
    ImaginedHandle,
    ImaginedReplicas,
)
from kerasmgpu.partitioner.runtime.one_device import (
    captured_variable,
    content_of,
)
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.tracing import Trace
from kerasmgpu.partitioner.step import loop_rounds
from kerasmgpu.partitioner.step.graph import Graph, Node
from kerasmgpu.partitioner.step.places import HOST
from kerasmgpu.partitioner.step.reading import shape_of
from kerasmgpu.partitioner.step.recompute import is_backward_name
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.replica_arithmetic import ASSUMED_SIZE, bounds_of
from kerasmgpu.strategies.recomputation import choices, recomputation_of

ACTIVATIONS, BATCH, CONSTANTS, GATHERED, GRADIENTS, WORKSPACE = (
    "activations",
    "batch",
    "constants",
    "gathered",
    "gradients",
    "workspace",
)
"""Categories of the bytes that are alive at the peak."""


class WrittenStep:
    """Writes a step, and its functions, as a worker would run them.

    Args:
        worker: Integer, its index.
        with_clusters: Whether XLA's clusters are functions of their own, if it
            compiles the step.

    Attributes:
        arguments: List of a pair for each argument of the step: the
            `ImaginedHandle` of a captured tensor, the number of the replica
            that gets a part of the batch, or `HOST` for a whole batch; and the
            argument's `Static`.
        temporary: Mapping from nodes that call functions to the bytes that these
            allocate besides their results, where those are known.
        library: Dictionary from names to the `FunctionDef`s that it calls.
        assumed: Names of sizes and loops that are unknown before the step
            runs; `ASSUMED_SIZE` was taken for each.
    """

    def __init__(
        self,
        step: TracedStep,
        setting: Setting,
        worker: int = 0,
        with_clusters: bool = False,
    ) -> None:
        self.temporary: Mapping[str, int] = {}
        self._traced = step
        self._setting = setting
        rows = setting.rows or step.rows
        self.jit_compile = step.jit_compile
        trace = step.program.trace.imagined(self._axes_of, self._is_offloaded)
        devices = self._replicas(worker)
        self._mesh = devices.mesh
        replicas = devices.split(int(setting.micro_batches))
        more = rows - step.rows  # Ragged rows begin at one number more.
        shapes = [
            (shape[0] and shape[0] + more, *shape[1:]) if shape else ()
            for shape in step.shapes
        ]
        in_shares = (False,) * len(shapes)
        is_split = setting.division.divides_rows and self._mesh.num_axes == 1
        if is_split and not setting.shares_memory and not step.stays_whole:
            in_shares = tuple(bool(shape) for shape in shapes)

        def planned(trace: Trace) -> Program:
            # With known shapes of the batch, other sizes are known, too.
            # Replicas with all rows divide some work by rows that the step
            # doesn't know.
            for leaf, shape in zip(trace.leaves, shapes):
                known = leaf.shape is not None and None not in shape
                is_divided = (
                    setting.division.divides_rows and not step.stays_whole
                )
                if known and is_divided:
                    leaf.static = leaf.shape = shape
            return Program(
                trace,
                replicas,
                in_shares,
                with_clusters and step.jit_compile,
                first_batch=shapes,
            )

        self._program = planned(trace)
        limit = setting.limit and setting.limit // setting.copies
        policy = recomputation_of(setting.recompute, lambda: limit)
        self._program = recomputing(self._program, choices(policy), planned)
        trace = self._program.trace
        self._sizes = ValueSizes(self._program.cost, replicas.mesh)
        emitted = self._program.emitted(self._program.form)
        build = self._build = emitted.build
        self.library = {one.signature.name: one for one in build.library}
        self._values = build.values()
        self._functions: dict[Any, WrittenFunction] = {}
        self._rounds = dict(_loops(trace.graph, self._sizes, {}))
        self.assumed: set[str] = self._sizes.assumed
        self.arguments: list[tuple[ImaginedHandle | int, Static]] = []
        for leaf, shape, width, is_share in zip(
            trace.leaves, shapes, emitted.widths, in_shares
        ):
            for place in range(width) if is_share else [HOST]:
                own = shape
                if is_share:
                    bounds = bounds_of(rows, setting.num_replicas)
                    at = devices.mesh.first + place
                    own = (bounds[at + 1] - bounds[at], *shape[1:])
                self.arguments.append((place, Static(leaf.dtype, own)))
        for handle, _ in build.captures.values():
            self.arguments.append((handle, self._static(handle)))
        self.main = self._function(
            build.library[-1], tuple(static for _, static in self.arguments)
        )
        self.main.categories = dict(self._categories())

    def _replicas(self, worker: int) -> Replicas:
        setting = self._setting
        imagined = ImaginedReplicas(
            setting.num_local,
            setting.num_workers,
            setting.device_type,
            setting.division.divides_rows,
            setting.division.axes,
            setting.layouts is None,
            worker,
        )
        if setting.num_replicas == 1:
            return Replicas(imagined.mesh)
        return imagined

    def _axes_of(self, outer: Any) -> AxesToShard:
        """Returns a captured variable's sharded axes; empty if it is whole."""
        known = self._record_of(outer)
        return () if known is None else self._setting.axes_to_shard(known)

    def _is_offloaded(self, outer: Any) -> bool:
        """Whether a captured variable is in host memory."""
        known = self._record_of(outer)
        return known is not None and self._setting.is_on_host(known)

    def _record_of(self, outer: Any) -> VariableRecord | None:
        """Returns the record of a captured variable; `None` for no variable."""
        return self._traced.record_of.get(id(captured_variable(outer)))

    def _static(self, handle: ImaginedHandle) -> Static:
        """Returns the `Static` of a captured tensor, as its device holds it."""
        tensor, axes = handle.variable.tensor, handle.variable.axes
        if tensor.dtype != tf.resource:
            return Static(tensor.dtype, shape_of(tensor))
        content = content_of(tensor)
        if content is None:
            return Static(tf.resource, None)
        shape, dtype = content
        sizes: list[Any] = list(shape or ())
        if axes:
            box = self._mesh.part(sizes, axes, handle.place)
            sizes = [own.stop - own.start for own in box]
        return Static(tf.resource, tuple(sizes), dtype)

    # Functions ---------------------------------------------------------------

    def function(self, name: str, given: Sequence[Static]) -> WrittenFunction:
        """Returns the function `name` for arguments like `given`; cached."""
        key = name, tuple(given)
        if key not in self._functions:
            self._functions[key] = self._function(self.library[name], key[1])
        return self._functions[key]

    def _function(
        self,
        definition: Any,
        given: tuple[Static, ...],
    ) -> WrittenFunction:
        function = WrittenFunction(definition, given, self._shape, self.library)
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
        return [name for name in names if name in self.library]

    def origins(self) -> dict[tuple[str, str], str]:
        """Returns the names that nodes of XLA's clusters had in the step.

        Keys are pairs: the name of the node that calls a cluster, and that of the
        node.
        """
        return {
            (cluster.call, name): origin
            for program in self.lowered.programs()
            for cluster in program.clusters
            for name, origin in cluster.origins.items()
        }

    def rounds_of(self, loop: WrittenNode) -> int:
        """Returns a loop's rounds; `ASSUMED_SIZE` if they are unknown."""
        name = re.sub(r"_\d+$", "", loop.name)
        rounds = self._rounds.get(loop.name, self._rounds.get(name))
        if rounds is None:
            self.assumed.add(f"rounds of {loop.name}")
            return ASSUMED_SIZE
        return rounds

    @property
    def lowered(self) -> Lowered:
        """The program that it is written from."""
        return self._build.program

    @property
    def devices(self) -> list[str]:
        """Full names of the worker's devices."""
        return list(dict.fromkeys(self._mesh.devices))

    @property
    def has_slots_on_host(self) -> bool:
        """Whether the step updates variables in host memory."""
        return bool(self._build.program.offloaded)

    # Memory ------------------------------------------------------------------

    @property
    def home(self) -> str:
        """Name of the first replica's memory."""
        return self.memory_of_place(0)

    def memory_of_place(self, place: int) -> str:
        """Returns the name of a replica's memory.

        Args:
            place: Integer, the replica's index among those of this worker, or
                `HOST`.
        """
        if self._setting.shares_memory or place == HOST:
            return "host"
        return self._program.replicas.mesh.devices[
            place * int(self._setting.micro_batches)
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

        Only ring all-reduces, and functions in `temporary`, are known to; 0 for
        all others.
        """
        if node.name in self.temporary:
            return self.temporary[node.name]
        if node.type != "CollectiveReduceV2":
            return 0
        if node.definition.attr["communication_hint"].s != b"ring":
            return 0
        # A member receives a copy of each part of the value but its own.
        size = function.group_size(node)
        return node.outputs[0].num_bytes * (size - 1) // size

    def _categories(self) -> Iterator[tuple[Reference, str]]:
        """Yields the `Reference`s of gathered weights and gradients.

        Each comes with its category, `GATHERED` or `GRADIENTS`; of a batch that
        is whole on the host, GPUs' rows with `BATCH`.
        """
        leaves = set(self._program.trace.leaves)
        for text, one in self._values.items():
            is_of_batch = (
                not self._setting.shares_memory and one.tensor in leaves
            )
            category = BATCH if is_of_batch else _category(one, text)
            if category and self.main.has(text):
                yield self.main.reference(text), category


def _category(one: Value, reference: str) -> str | None:
    tensor = one.tensor
    if not tensor.dtype.is_floating:
        return None
    if Trait.READS in tensor.node.traits:
        is_read = "ReadVariableOp:value" in reference
        return None if is_read or ":" not in reference else GATHERED
    if one.has(Partial) or "all_reduce" in reference:
        return GRADIENTS
    if any(map(is_of_variable, one.placement)) and is_backward_name(
        tensor.node.name
    ):
        return GRADIENTS
    return None


def _loops(
    graph: Graph, sizes: ValueSizes, earlier: dict[Node, Any]
) -> Iterator[tuple[str, int]]:
    """Yields the name and rounds of each loop of a graph, also nested ones.

    Takes `ASSUMED_SIZE` for unknown rounds, and adds their names to
    `sizes.assumed`.

    Args:
        earlier: Rounds of the loops before; those found here are added.
    """
    for node in graph.nodes:
        if Trait.LOOP in node.traits:
            size = loop_rounds.rounds_of(node, earlier)
            rounds = 0 if size is None else sizes.value_of(size) or 0
            if rounds < 1:
                sizes.assumed.add(f"rounds of {node.name}")
                rounds = ASSUMED_SIZE
            earlier[node] = rounds
            yield node.name, rounds
        for body in node.bodies:
            yield from _loops(body, sizes, earlier)
