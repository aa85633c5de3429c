"""Plans a trace, and writes it as a function that the replicas run together."""

import copy
import dataclasses
import functools
import itertools
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from typing import cast

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from kerasmgpu.division import AxesToShard
from kerasmgpu.partitioner import passes
from kerasmgpu.partitioner.ir.instructions import (
    Communication,
    Instruction,
    RequireEqualRows,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Lowered, Members
from kerasmgpu.partitioner.ir.printing import graph_text
from kerasmgpu.partitioner.lowering import all_passes, device_shares, entries
from kerasmgpu.partitioner.lowering.building import Build
from kerasmgpu.partitioner.lowering.communicators import (
    new_groups,
    require_equal,
)
from kerasmgpu.partitioner.lowering.compute_time import ComputeTime
from kerasmgpu.partitioner.lowering.emission import emit
from kerasmgpu.partitioner.lowering.first_run import in_turns
from kerasmgpu.partitioner.lowering.function_writer import References
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.passes import sending
from kerasmgpu.partitioner.planning import facts
from kerasmgpu.partitioner.planning.planner import PlanCache, plan_mesh
from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    MeshAxes,
    Rows,
    Sharded,
)
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.runtime.imagined import ImaginedVariable
from kerasmgpu.partitioner.runtime.making import making
from kerasmgpu.partitioner.runtime.one_device import (
    container,
    content_of,
    is_sum,
)
from kerasmgpu.partitioner.runtime.sharded_variable import (
    variable_of,
)
from kerasmgpu.partitioner.runtime.tracing import (
    Trace,
    without_garbage_collection,
)
from kerasmgpu.partitioner.runtime.written import Written
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.graph import Graph, Sparse, Tensor
from kerasmgpu.partitioner.step.records import Trait

_numbers = itertools.count()


@dataclasses.dataclass
class Emitted:
    """A written function that isn't in TensorFlow's library.

    Attributes:
        build: Its `Build`, with its library and what it captures.
        widths: For each leaf of the arguments, the number of tensors that it is
            passed as.
        types: `tf.DType`s of its outputs.
    """

    build: Build
    widths: list[int]
    types: list[tf.DType]


BeforeCompiling = Callable[
    [Collection[str], Mapping[str, int] | None], Mapping[str, str] | None
]
"""Is told the names of functions that XLA will compile. If all workers of a job
write the function at that time, it is also told the levels of its clusters, and
may call collectives. Returns `None` unless devices load what another one has
compiled; else what `first_run.in_turns` takes as `queues`."""


class Program:
    """Plans a trace for the replicas, and writes its functions on demand.

    Args:
        in_shares: For each leaf of the arguments, whether it is passed as a
            share per replica; else it is whole.
        jit_compile: Whether XLA compiles each cluster of a replica's operations
            without communication.
        compute_time: `compute_time.ComputeTime` that measures the program, or
            `None`.
        first_batch: For each leaf of the arguments, its shape in the first
            worker's first batch, if known: from it, the planner knows how many
            bytes each plan sends.
        in_more_parts: Function that returns the program for a number of
            micro-batches, or `None`. If it is given, variables are assigned
            when everything else is computed; see `out_of_memory.py`.
        log: Function `(program, written)` that is called when a function is
            written, or `None`.
        before_compiling: `BeforeCompiling`, which is called before XLA
            compiles, or `None`.

    Attributes:
        offloaded: Handles, among the graph's inputs, of variables on the host.
    """

    def __init__(
        self,
        trace: Trace,
        replicas: Replicas,
        in_shares: tuple[bool, ...] | None = None,
        jit_compile: bool = False,
        compute_time: ComputeTime | None = None,
        first_batch: Sequence[Sequence[int | None]] | None = None,
        in_more_parts: "Callable[[int], Program] | None" = None,
        log: "Callable[[Program, Written], None] | None" = None,
        before_compiling: BeforeCompiling | None = None,
    ) -> None:
        self.trace = trace
        self.in_more_parts = in_more_parts
        self.replicas = replicas
        self.in_shares = in_shares or (False,) * len(trace.leaves)
        self._jit_compile = jit_compile
        self._is_beside = False
        self._groups: Mapping[Members, Sequence[int]] = {}
        self._compute_time = compute_time
        self._log = log
        self._before_compiling = before_compiling
        self.queues: Mapping[str, str] = {}
        self._given: dict[Tensor, Value] = {}
        self._handles: dict[Tensor, list[tf.Tensor]] = {}
        self.offloaded: set[Tensor] = set()
        self._written: dict[bool, Written] = {}
        self._describe_leaves()
        self._describe_captured()
        self._joins: list[tuple[sizes.Symbol, sizes.Symbol]] = []
        facts.infer(trace.graph, self._joins)
        trace.dump("infer", lambda: graph_text(trace.graph))
        self.cost = self._cost_model(first_batch or [])
        self._plan()
        trace.dump("plan", lambda: graph_text(trace.graph, self.plans))

    def _plan(
        self,
        planned: tuple[Plans, ...] = (),
        cache: PlanCache | None = None,
    ) -> None:
        """Plans the trace; `planned` are plans of the first mesh axes."""
        graph, mesh = self.trace.graph, self.replicas.mesh
        self.plans = plan_mesh(
            graph,
            [self._given[one].placement for one in graph.inputs],
            self.cost,
            gathers=mesh.micro_batches > 1 or len(mesh.planning_axes[0]) > 1,
            planning_axes=mesh.planning_axes,
            planned=planned,
            cache=cache,
        )

    def laid_out(
        self,
        axes_of: Mapping[Tensor, AxesToShard],
        planned: tuple[Plans, ...],
        cache: PlanCache,
    ) -> "Program":
        """Returns the program for variables that are divided in another way.

        It tells what that would cost, and can't run.

        Args:
            axes_of: For handles among the captured tensors, the axes of the
                variable that are divided. Its trace must be `Trace.imagined`
                with these variables sharded.
            planned: Plans of the first mesh axes, if they are known.
            cache: `PlanCache` of the layouts of this program.
        """
        other = copy.copy(self)
        other._given = dict(self._given)
        for tensor, axes in axes_of.items():
            kinds = _kinds_of_axes(tensor, axes, self.replicas.mesh)
            other._give(tensor, *map(cache.once, kinds))
        other._written = {}
        other._plan(planned, cache)
        return other

    def _describe_leaves(self) -> None:
        """Sets kinds and shapes of the arguments."""
        batched = _batched(self.trace)
        given: dict[Tensor | Sparse, bool] = dict(
            zip(self.trace.leaves, self.in_shares)
        )
        in_shares = [given.get(leaf, False) for leaf in batched]
        rows = _rows_of_leaves(batched, in_shares)
        first = next((size for size in rows if size is not None), None)
        for leaf, size, is_share in zip(batched, rows, in_shares):
            is_divided = is_share or self.replicas.mesh.divides_rows
            if isinstance(leaf, Sparse):
                self._describe_sparse(leaf, size, first if is_divided else None)
                continue
            kind: Kind = REPLICATED
            if size is not None:
                leaf.shape = (size, *leaf.shape[1:])
                if is_divided:
                    kind = Sharded(0, Rows(size, leaf, over=self._row_axes))
            self._give(leaf, kind)
            leaf.complete()

    @property
    def _row_axes(self) -> MeshAxes:
        """The mesh axes that the rows of a batch are divided along."""
        return self.replicas.mesh.planning_axes[0]

    def _give(self, tensor: Tensor, *kinds: Kind) -> None:
        """Records the kinds of an input on the first planning axes.

        It is replicated on the others.
        """
        others = self.replicas.mesh.num_axes - len(kinds)
        placement = (*kinds, *[REPLICATED] * others)
        self._given[tensor] = Value(tensor, placement)

    def _describe_sparse(
        self,
        leaf: Sparse,
        size: sizes.SizeLike | None,
        first: sizes.SizeLike | None,
    ) -> None:
        """Sets kinds and shapes of a sparse input: entries are sharded by row.

        Args:
            first: Number of rows of the first input that has rows, or `None`.
                Its shares are used: row n of a target goes to the replica with
                prediction n.
        """
        symbol = sizes.Symbol(f"entries of {leaf.indices}", (leaf.indices, 0))
        number = sizes.of(symbol)
        leaf.indices.shape = (number, len(leaf.shape))
        leaf.values.shape = (number,)
        kind: Kind = REPLICATED
        if size is not None and first is not None:
            over = self._row_axes
            rows = Rows(first, over=over)
            kind = Sharded(0, Rows(number, leaf.indices, of=rows, over=over))
        self._give(leaf.indices, kind)
        self._give(leaf.values, kind)
        self._give(leaf.dense_shape)
        leaf.dense_shape.shape = (len(leaf.shape),)
        leaf.dense_shape.value = tuple(
            size
            if axis == 0 and size is not None
            else _entry(leaf.dense_shape, axis)
            if known is None
            else known
            for axis, known in enumerate(leaf.shape)
        )

    def _describe_captured(self) -> None:
        """Sets kinds of captured tensors, and the handle for each replica."""
        for tensor, outer in self.trace.captured:
            variable = container(outer)
            content = content_of(outer)
            tensor.element = None if content is None else content[0]
            tensor.complete()
            mesh = self.replicas.mesh
            self._give(tensor)
            self._handles[tensor] = [outer] * mesh.num
            if variable is not None and is_sum(variable):
                self._give(tensor, *[PARTIAL] * mesh.num_axes)
            sharded = variable_of(outer)
            axes = () if sharded is None else sharded.shard_axes
            if isinstance(outer, ImaginedVariable):
                axes = outer.axes
                handles = outer.handles(mesh.num // mesh.micro_batches)
            elif variable is not None:
                handles = [copy.handle for copy in variable.values]
            elif sharded is not None:
                handles = [part.handle for part in sharded.parts]
            else:
                continue
            held = outer if isinstance(outer, ImaginedVariable) else sharded
            if held is not None and held.is_offloaded:
                self.offloaded.add(tensor)
            if any(axis is not None for axis in axes):
                self._give(tensor, *_kinds_of_axes(tensor, axes, mesh))
            self._handles[tensor] = [
                handle for handle in handles for _ in range(mesh.micro_batches)
            ]

    def _cost_model(
        self, first_batch: Sequence[Sequence[int | None]]
    ) -> CostModel:
        """Returns the cost model for batches as large as the first one."""
        known = {}
        for leaf, shape in zip(self.trace.leaves, first_batch):
            for symbolic, size in zip(leaf.shape or (), shape):
                if not isinstance(symbolic, sizes.Size) or size is None:
                    continue
                symbol, *others = symbolic.symbols
                if not others and sizes.of(symbol) == symbolic:
                    known[symbol.joined] = size
        return CostModel(known)

    def _checks(self, given: Mapping[Tensor, Value]) -> list[Instruction]:
        """Returns checks for equal numbers of rows of inputs used together."""
        return [
            RequireEqualRows(
                tuple(given[symbol.source[0]] for symbol in pair),
                (),
                pair,
                f"The {pair[0]} and the {pair[1]} of {self.trace.name!r} are "
                "used row by row together, and their numbers differ in this "
                "batch. Give each batch one number of rows; what is no batch "
                "gets a fixed first axis.",
            )
            for pair in self._joins
        ]

    def written(self, with_outputs: bool = True) -> Written:
        """Returns the function for the replicas, written when first needed.

        Args:
            with_outputs: Whether the outputs of the traced function are needed.
                If not, the function with outputs is still returned if it exists
                already, or if the step has random state.
        """
        # Two functions would each have a random state of its own.
        with_outputs = with_outputs or self.has_random_state
        if True in self._written:
            return self._written[True]
        with making, without_garbage_collection():
            if with_outputs not in self._written:
                emitted = self.emitted(with_outputs)
                self._written[with_outputs] = self.added(emitted, with_outputs)
        return self._written[with_outputs]

    def beside(self) -> "Program":
        """Returns the form that XLA compiles, and that can take this one's place.

        See `Lowered.is_beside`. It has the same trace and the same plans. A
        thread can write it.
        """
        other = copy.copy(self)
        other._jit_compile = other._is_beside = True
        other._groups = new_groups(self.replicas.mesh)
        other._written = {}
        return other

    @property
    def is_compiled(self) -> bool:
        """Whether XLA compiles the step, as on one device with `jit_compile=True`.

        The form beside a step draws its random numbers outside of XLA.
        """
        return self._jit_compile and not self._is_beside

    @property
    def has_random_state(self) -> bool:
        """Whether operations keep a random state, as `tf.random.normal` does."""
        return _has_random_state(self.trace.graph)

    @functools.cached_property
    def without_arguments(self) -> Written | None:
        """The side effects of a step whose input is exhausted.

        A `Written` without outputs; `None` if there are no side effects, or XLA
        compiles the program: it runs all or nothing.
        """
        if self._jit_compile and not self._is_beside:
            return None
        trace = self.trace.without_arguments()
        if trace is None:
            return None
        program = Program(trace, self.replicas, log=self._log)
        return program.written(with_outputs=False)

    def communication(self) -> Iterator[Communication]:
        """Yields what replicas of one process send in a step; see `sending`."""
        graph, mesh = self.trace.graph, self.replicas.mesh
        given, outputs = self._passed(), self._whole(graph.outputs)
        return sending.sent_by(
            Lowered(
                self.trace.name,
                graph,
                self.plans,
                mesh,
                list(given.values()),
                outputs,
            )
        )

    def _whole(self, tensors: Sequence[Tensor]) -> list[Value]:
        number = self.replicas.mesh.num_axes
        return [value(tensor, REPLICATED, number) for tensor in tensors]

    def _passed(self) -> dict[Tensor, Value]:
        """Returns the inputs as they are passed."""
        leaves = self.trace.leaves
        given = dict(zip(leaves, self._whole(leaves)))
        for tensor, in_shares in zip(leaves, self.in_shares):
            if in_shares:
                given[tensor] = self._given[tensor]
        for tensor, _ in self.trace.captured:
            given[tensor] = self._given[tensor]
        return given

    def lowered(
        self, with_outputs: bool = True
    ) -> tuple[Lowered, dict[Tensor, Value]]:
        """Returns the lowered program, and `{input: value}` as they are passed."""
        outputs = self.trace.graph.outputs if with_outputs else []
        given = self._passed()
        copied: set[Value] = set()
        for tensor, _ in self.trace.captured:
            if len(set(map(id, self._handles[tensor]))) > 1:
                copied.add(given[tensor])
        lowered = passes.unlowered(
            self.trace.name,
            self.trace.graph,
            self.plans,
            self.replicas.mesh,
            list(given.values()),
            self._whole(outputs),
            grouped=outputs,
            is_compiled=self._jit_compile,
            is_beside=self._is_beside,
        )
        lowered.instructions[:0] = self._checks(given)
        lowered.copied = frozenset(copied)
        lowered.offloaded = frozenset(map(given.__getitem__, self.offloaded))
        lowered.groups = self._groups
        lowered.assigns_last = self.in_more_parts is not None
        all_passes.lower(lowered, self.trace.dump)
        return lowered, given

    def emitted(self, with_outputs: bool = True) -> "Emitted":
        """Writes the function for the replicas; TensorFlow doesn't get it.

        It is the last function of the `library` of `Emitted.build`.
        """
        lowered, given = self.lowered(with_outputs)
        library: list[function_pb2.FunctionDef] = []
        build = Build(lowered, library, self.replicas)
        mesh, widths = self.replicas.mesh, []
        for tensor, in_shares in zip(self.trace.leaves, self.in_shares):
            width = mesh.num // mesh.micro_batches if in_shares else 1
            widths.append(width)
            passed = [
                build.writer.add_input("batch", tensor.dtype)
                for _ in range(width)
            ]
            references: References = (
                device_shares.pass_to_devices(build, tensor, passed)
                if in_shares
                else build.same(passed[0])
            )
            build.give(given[tensor], references)
            build.wait_for(references[0])
        for tensor, _ in self.trace.captured:
            references = [build.captured(h) for h in self._handles[tensor]]
            build.give(given[tensor], references)
        if mesh.total > 1:
            for leaf in self.trace.sparse:
                if self._given[leaf.indices].is_local:
                    entries.sort_by_row(build, leaf)
        if self._compute_time is not None:
            build.clock = self._compute_time.clock(build)
        emit(build, lowered)
        made = [build.references(one)[0] for one in lowered.outputs]
        name = f"kerasmgpu_{self.trace.name}_{next(_numbers)}"
        build.writer.effects = build.effects()
        if build.clock is not None:
            build.writer.effects += build.clock.finish()
        library.append(all_passes.finish(build, name, made, self.trace.dump))
        return Emitted(build, widths, [one.dtype for one in made])

    def added(self, emitted: Emitted, with_outputs: bool) -> Written:
        """Adds an emitted function to TensorFlow's library; collective."""
        build, lowered = emitted.build, emitted.build.program
        agreement = self.replicas.agreement
        are_together = require_equal(build, agreement, self.trace.name)
        library = build.library
        for one in lowered.programs():
            for cluster in one.clusters:
                self.trace.compiled[cluster.function] = cluster.origins
        written = Written(
            library,
            [tensor for tensor, _ in build.captures.values()],
            emitted.types,
            [tensor.static for tensor in self.trace.graph.outputs],
            emitted.widths,
            with_outputs,
            lowered,
            self._in_turns(library[-1], lowered, are_together),
        )
        self.trace.dump("write", lambda: "\n".join(map(str, library)))
        if self._log is not None:
            self._log(self, written)
        return written

    def _in_turns(
        self,
        function: function_pb2.FunctionDef,
        lowered: Lowered,
        are_together: bool,
    ) -> function_pb2.FunctionDef | None:
        """The function of the first run, if it is another; see `first_run.py`."""
        if self._before_compiling is None:
            return None
        levels: dict[str, int] = {}
        for cluster in lowered.clusters:
            levels.setdefault(cluster.function, cluster.level)
            levels[cluster.function] = min(
                levels[cluster.function], cluster.level
            )
        # Another function would have another random state.
        may_wait = self._jit_compile and not self.has_random_state
        queues = self._before_compiling(
            self.trace.compiled.keys(),
            levels if are_together and may_wait else None,
        )
        self.queues = queues or {}
        if queues is None or self._is_beside or self.has_random_state:
            return None
        host = self.replicas.mesh.host
        return in_turns(function, lowered.clusters, queues, host)


def _kinds_of_axes(handle: Tensor, axes: AxesToShard, mesh: Mesh) -> list[Kind]:
    """Returns the kinds of the handle of a variable that is divided."""
    if not axes:
        return [REPLICATED] * mesh.num_axes
    kinds: list[Kind] = []
    for every in mesh.planning_axes:
        over = tuple(one for one in every if axes[one] is not None)
        kind: Kind = REPLICATED
        if over:
            axis = cast(int, axes[over[0]])
            rows = Rows(handle.element[axis], are_of_variable=True, over=over)
            kind = Sharded(axis, rows)
        kinds.append(kind)
    return kinds


def _has_random_state(graph: Graph) -> bool:
    """Whether operations keep a random state, as `tf.random.normal` does."""
    return any(
        any(map(_has_random_state, node.bodies))
        or node.is_stateful
        and not node.bodies
        and Trait.NO_RANDOM_STATE not in node.traits
        and not any(tensor.dtype == tf.resource for tensor in node.inputs)
        for node in graph.nodes
    )


def _batched(trace: Trace) -> list[Tensor | Sparse]:
    """Returns a trace's leaves, with those of a sparse tensor as one `Sparse`."""
    first = {one.indices: one for one in trace.sparse}
    others = {t for one in trace.sparse for t in (one.values, one.dense_shape)}
    return [
        first.get(leaf, leaf) for leaf in trace.leaves if leaf not in others
    ]


def _rows_of_leaves(
    leaves: Sequence[Tensor | Sparse], in_shares: Sequence[bool]
) -> list[sizes.SizeLike | None]:
    """Returns each leaf's number of rows; `None` if it has no rows.

    If the first axis of some leaf has no static size, leaves with a static
    first axis have no rows: a table that comes with each batch, for example. If
    all are static, those leaves have rows whose first axis is as long as that
    of the first leaf with axes. Shares have rows in any case, unless they are
    scalars.
    """
    first = [leaf.shape[0] for leaf in leaves if leaf.shape]
    if None in first:
        return [
            _rows_symbol(leaf, number)
            if leaf.shape and leaf.shape[0] is None
            else leaf.shape[0]
            if leaf.shape and is_share
            else None
            for number, (leaf, is_share) in enumerate(zip(leaves, in_shares))
        ]
    return [
        leaf.shape[0]
        if leaf.shape and (is_share or leaf.shape[0] == first[0])
        else None
        for leaf, is_share in zip(leaves, in_shares)
    ]


def _rows_symbol(leaf: Tensor | Sparse, number: int) -> sizes.Size:
    source = leaf.dense_shape if isinstance(leaf, Sparse) else leaf
    is_entry = isinstance(leaf, Sparse)
    name = f"rows of input {number}"
    return sizes.of(sizes.Symbol(name, (source, 0), True, is_entry))


def _entry(vector: Tensor, index: int) -> sizes.Size:
    """Returns a symbol for an entry of an input that is a vector of sizes."""
    symbol = sizes.Symbol(f"{vector}[{index}]", (vector, index), is_entry=True)
    return sizes.of(symbol)
