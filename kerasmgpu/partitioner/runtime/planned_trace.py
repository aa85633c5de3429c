"""Plans a trace for the replicas: what each holds, computes and sends."""

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from typing import cast

import tensorflow as tf

from kerasmgpu.division import AxesToShard
from kerasmgpu.partitioner import passes
from kerasmgpu.partitioner.ir.instructions import (
    Instruction,
    RequireEqualRows,
    Value,
    value,
)
from kerasmgpu.partitioner.ir.lowered import Form, Lowered
from kerasmgpu.partitioner.ir.printing import graph_text
from kerasmgpu.partitioner.lowering import all_passes
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.passes import sending
from kerasmgpu.partitioner.planning import facts, written_out
from kerasmgpu.partitioner.planning.all_to_alls import first_to_exchange
from kerasmgpu.partitioner.planning.planner import (
    PlanCache,
    plan_mesh,
)
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
from kerasmgpu.partitioner.runtime.costs import Costs, in_a_ring
from kerasmgpu.partitioner.runtime.imagined import ImaginedVariable
from kerasmgpu.partitioner.runtime.one_device import (
    container,
    content_of,
    is_sum,
)
from kerasmgpu.partitioner.runtime.sharded_variable import variable_of
from kerasmgpu.partitioner.runtime.tracing import Trace
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.constraints import varying_lengths
from kerasmgpu.partitioner.step.graph import Graph, Node, Sparse, Tensor
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.partitioner.step.sizes import Shape


class PlannedTrace:
    """A trace with the plan by which replicas run it.

    Args:
        in_shares: For each leaf of the arguments, whether it is passed as a
            share per replica; else it is whole.
        first_batch: For each leaf of the arguments, its shape in the first
            worker's first batch, if known: from it, the planner knows how many
            bytes each plan sends.

    Attributes:
        given: Maps the graph's inputs to their values, as they are planned.
        handles: Maps captured tensors to what each replica takes for them.
        offloaded: Handles, among the graph's inputs, of variables on the host.
        plans: The `rules.table.Plans` of the graph on each axis of the mesh.
    """

    def __init__(
        self,
        trace: Trace,
        replicas: Replicas,
        in_shares: tuple[bool, ...] | None = None,
        first_batch: Sequence[Sequence[int | None]] | None = None,
    ) -> None:
        self.trace = trace
        self.replicas = replicas
        self.in_shares = in_shares or (False,) * len(trace.leaves)
        self.given: dict[Tensor, Value] = {}
        self.handles: dict[Tensor, list[tf.Tensor]] = {}
        self.offloaded: set[Tensor] = set()
        self._describe_leaves()
        self._describe_captured()
        self._joins: list[tuple[sizes.Symbol, sizes.Symbol]] = []
        facts.infer(trace.graph, self._joins)
        trace.dump("infer", lambda: graph_text(trace.graph))
        self.cost = self._cost_model(first_batch or [])
        cache = PlanCache()
        self._exchanges = False
        self._needs: sending.NeedsCache | None = None
        self._plan(cache=cache)
        self._exchange(cache)
        self._write_out(cache)
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
            [self.given[one].placement for one in graph.inputs],
            self.cost,
            gathers=mesh.micro_batches > 1 or len(mesh.planning_axes[0]) > 1,
            planning_axes=mesh.planning_axes,
            planned=planned,
            cache=cache,
            exchanges=self._exchanges,
        )

    def _exchange(self, cache: PlanCache) -> None:
        """Divides products along other axes, by all-to-alls, where less is sent."""
        graph, plans = self.trace.graph, self.plans
        along = self.replicas.mesh.planning_axes
        first = first_to_exchange(graph, plans, along, self.cost)
        if first is None:
            return
        sent, self._exchanges = self._num_bytes_sent(), True
        self._plan(plans[:first], cache)
        if self._num_bytes_sent() >= sent:
            self.plans, self._exchanges = plans, False

    def _write_out(self, cache: PlanCache) -> None:
        """Writes operations out where that sends less; see `written_out`."""
        graph, tried, mesh = self.trace.graph, set[Node](), self.replicas.mesh
        gathering = functools.partial(
            written_out.gathering,
            graph,
            numbers=[*map(mesh.num_devices, mesh.planning_axes)],
        )
        while found := gathering(self.plans, but=tried):
            plans, sent, undo = self.plans, self._num_bytes_sent(), []
            group, known = written_out.first_alike(found), tried.union(found)
            while group:  # And those that gather what it no longer does.
                tried.update(group)
                undo.append(written_out.write_out(graph, group, self._joins))
                self._plan(cache=cache)
                group = gathering(self.plans, but=known)
            if self._num_bytes_sent() >= sent:
                for one in reversed(undo):
                    one()
                self.plans = plans

    def _num_bytes_sent(self) -> int:
        """Estimates the bytes that a replica sends in a step."""
        total, mesh = 0, self.replicas.mesh
        for one in sending.sent_by(self._program(Form()), self._needs):
            number = mesh.num_devices(one.along(mesh))
            for _, elements, size in one.sizes(mesh):
                whole = math.ceil(self.cost.value_of(elements or 0) * size)
                total += in_a_ring(one.name.partition(".")[0], whole, number)
        return total

    def laid_out(
        self,
        axes_of: Mapping[Tensor, AxesToShard],
        planned: tuple[Plans, ...],
        cache: PlanCache,
        needs: sending.NeedsCache | None = None,
    ) -> "PlannedTrace":
        """Returns the plan for variables that are divided in another way.

        Args:
            axes_of: For handles among the captured tensors, the axes of the
                variable that are divided. Its trace must be `Trace.imagined`
                with these variables sharded. For leaves, inner axes that are
                divided, besides their rows.
            planned: Plans of the first mesh axes, if they are known.
            cache: `PlanCache` of the layouts of this trace.
            needs: `NeedsCache` of the layouts of this trace, if there are many.
        """
        other = copy.copy(self)
        other._needs = needs
        other.given = dict(self.given)
        for tensor, axes in axes_of.items():
            kinds = _kinds_of_axes(tensor, axes, self.replicas.mesh)
            if tensor.dtype != tf.resource:
                rows = self.given[tensor].placement
                kinds = [
                    row if kind == REPLICATED else kind
                    for kind, row in zip(kinds, rows)
                ]
            other._give(tensor, *map(cache.once, kinds))
        other._plan(planned, cache)
        other._exchange(cache)
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
        lengths_vary = any(
            varying_lengths(node)[1] for node in self.trace.graph.nodes
        )
        for number, leaf in enumerate(batched):
            size, is_share = rows[number], in_shares[number]
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
            if lengths_vary and leaf.shape is not None:
                leaf.shape = _with_lengths(leaf, number)
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
        self.given[tensor] = Value(tensor, placement)

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
            self.handles[tensor] = [outer] * mesh.num
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
            self.handles[tensor] = [
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
        return CostModel(known, self.replicas.mesh.num_devices)

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
                "gets a fixed first axis."
                if pair[0].is_rows
                else f"The {pair[0]} and the {pair[1]} of {self.trace.name!r} "
                "are used together, and differ in this batch. Give all inputs "
                "of a batch one length; an axis that is broadcast gets a fixed "
                "length of 1.",
            )
            for pair in self._joins
        ]

    @property
    def has_random_state(self) -> bool:
        """Whether operations keep a random state, as `tf.random.normal` does."""
        return _has_random_state(self.trace.graph)

    def costs(self, rows: int) -> Costs:
        """Returns the `Costs` of the plan, without lowering all of it.

        What is sent is that of a single process; see `passes.sending`.
        """
        program = self._program(Form())
        return Costs(program, rows, sending.sent_by(program, self._needs))

    def _whole(self, tensors: Sequence[Tensor]) -> list[Value]:
        number = self.replicas.mesh.num_axes
        return [value(tensor, REPLICATED, number) for tensor in tensors]

    def _passed(self) -> dict[Tensor, Value]:
        """Returns the inputs as they are passed."""
        leaves = self.trace.leaves
        given = dict(zip(leaves, self._whole(leaves)))
        for tensor, in_shares in zip(leaves, self.in_shares):
            if in_shares:
                given[tensor] = self.given[tensor]
        for tensor, _ in self.trace.captured:
            given[tensor] = self.given[tensor]
        return given

    def _program(self, form: Form) -> Lowered:
        """Returns the program of a form, without instructions."""
        outputs = self.trace.graph.outputs if form.with_outputs else []
        return Lowered(
            self.trace.name,
            self.trace.graph,
            self.plans,
            self.replicas.mesh,
            list(self._passed().values()),
            self._whole(outputs),
            outputs,
            form,
        )

    def lowered(self, form: Form) -> Lowered:
        """Returns the program of a form, behind the passes on programs."""
        given = self._passed()
        lowered = passes.with_instructions(self._program(form))
        lowered.instructions[:0] = self._checks(given)
        lowered.copied = frozenset(
            given[tensor]
            for tensor, _ in self.trace.captured
            if len(set(map(id, self.handles[tensor]))) > 1
        )
        lowered.offloaded = frozenset(map(given.__getitem__, self.offloaded))
        all_passes.lower(lowered, self.trace.dump)
        return lowered


def _kinds_of_axes(tensor: Tensor, axes: AxesToShard, mesh: Mesh) -> list[Kind]:
    """Returns the kinds of a tensor, or of a variable's handle, that is divided."""
    if not axes:
        return [REPLICATED] * mesh.num_axes
    kinds: list[Kind] = []
    for every in mesh.planning_axes:
        over = tuple(one for one in every if axes[one] is not None)
        kind: Kind = REPLICATED
        if over:
            axis = cast(int, axes[over[0]])
            is_handle = tensor.dtype == tf.resource
            shape = tensor.element if is_handle else tensor.shape
            size = cast(int, cast(Shape, shape)[axis])
            rows = Rows(size, are_of_variable=True, over=over)
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


def _with_lengths(leaf: Tensor, number: int) -> Shape:
    """Returns an input's shape with symbols of the lengths of its inner axes."""
    return tuple(
        sizes.of(
            sizes.Symbol(
                f"length of axis {axis} of input {number}",
                (leaf, axis),
                is_length=True,
            )
        )
        if axis and size is None
        else size
        for axis, size in enumerate(leaf.shape)
    )


def _entry(vector: Tensor, index: int) -> sizes.Size:
    """Returns a symbol for an entry of an input that is a vector of sizes."""
    symbol = sizes.Symbol(f"{vector}[{index}]", (vector, index), is_entry=True)
    return sizes.of(symbol)
