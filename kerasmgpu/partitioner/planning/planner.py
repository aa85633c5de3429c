"""Plans how each tensor of a graph is distributed over the replicas.

Kinds are propagated from the inputs along the operations, by the rules. A
partial sum that some operation needs whole is summed once, for all of its
consumers. The graph is planned again until neither the kinds of lists nor the
set of these sums changes.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.planning.all_to_alls import shared_axis
from kerasmgpu.partitioner.planning.facts import is_known
from kerasmgpu.partitioner.planning.structure import (
    Stretch,
    Structure,
    moves,
    stretches,
)
from kerasmgpu.partitioner.rules import (
    lists,
    per_replica,
    reductions,
    table,
    tables,
)
from kerasmgpu.partitioner.rules.compatible import divides_one_axis, fits
from kerasmgpu.partitioner.rules.cost import CostModel
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    Kind,
    ListOf,
    LocalSizes,
    MeshAxes,
    Partial,
    PerReplica,
    Placement,
    Replicated,
    Rows,
    Sharded,
    is_exchanged,
    is_fixed,
    is_of_variable,
)
from kerasmgpu.partitioner.rules.table import Plan, Plans
from kerasmgpu.partitioner.step import sizes
from kerasmgpu.partitioner.step.constraints import layout_of
from kerasmgpu.partitioner.step.graph import Graph, Node, Tensor
from kerasmgpu.partitioner.step.records import Trait, record

_MOST_PASSES = 50

_MOST_FOLLOWED = 8
"""Operations between a product and one that takes an axis of it whole."""

AnyKind = TypeVar("AnyKind", bound=Kind)
Item = TypeVar("Item")


class _Planned(NamedTuple):
    """A node's plan, and what else follows from what the plan was made from.

    Attributes:
        objects: Kinds and plans that the plan was made from.
        sums: Whether an input is summed first; see `Planner._note_sums`.
        divides: See `Planner._divides_update`.
        gathers: See `_gathers_parts`.
        is_state: See `Planner._is_state`.
        is_free: See `Planner._is_free`.
        is_given: Whether consumers see outputs in the kinds that the plan gives.
    """

    plan: Plan
    objects: tuple[Any, ...]
    sums: bool
    divides: bool
    gathers: bool
    is_state: bool
    is_free: bool
    is_given: bool


_Seen: TypeAlias = tuple[Kind | None, bool, frozenset[Tensor]]
"""What a planner knows of a tensor that isn't near a node: its kind, whether it is
gathered for all of its consumers, and its multiples."""


class _Kept(NamedTuple):
    """What a pass over a stretch of nodes has made of what it began with.

    Attributes:
        objects: What its key has the identities of.
        seen: What the pass saw of tensors that the key doesn't tell.
        plans: `Plans` of the stretch, with the kinds that it has changed.
        state: See `Planner._is_state`.
        of_variables: See `Planner._note_part`.
        summed: Tensors that are summed for all of their consumers.
        gathered: See `Planner._gather`.
        multiples: See `Planner._shared_source`.
        changed: Whether another pass has to follow.
    """

    objects: tuple[Any, ...]
    seen: dict[Tensor, _Seen]
    plans: Plans
    state: frozenset[Tensor]
    of_variables: frozenset[Tensor]
    summed: frozenset[Tensor]
    gathered: dict[Tensor, Sharded]
    multiples: dict[Tensor, frozenset[Tensor]]
    changed: bool


class PlanCache:
    """What passes over a graph, and plans of several layouts, share.

    Plans are kept by all that planning a node looks at. Kinds are told apart by
    identity, which is quicker than comparing them: `once` returns one for equal
    ones, and the cache keeps them alive.

    Args:
        graph: A graph that stays as it is, and that many layouts are planned of:
            stretches of its nodes are kept, too.
    """

    def __init__(self, graph: Graph | None = None) -> None:
        self.planned: dict[Any, _Planned] = {}
        self._marks: list[Node] | None = None
        self.structure = None if graph is None else Structure(graph)
        self.stretches: list[Stretch] = []
        if self.structure is not None:
            self.stretches = stretches(self.structure)
        self.kept: dict[Any, list[_Kept]] = {}
        self._kinds: dict[Any, Kind] = {}
        self._numbers: dict[Any, tuple[int, Sequence[Any]]] = {}
        self._of_nodes: tuple[tuple[Plans, ...], dict[Node, list[Plan]]]
        self._of_nodes = (), {}

    def marks(self, graph: Graph) -> list[Node]:
        """Returns the marks of the program; see `step/constraints.py`."""
        if self._marks is None:
            self._marks = [
                node for node in graph.nodes if layout_of(node) is not None
            ]
        return self._marks

    def once(self, kind: AnyKind) -> AnyKind:
        """Returns the first of equal kinds, of the same inputs' rows.

        Kinds of lists change, and stay as they are.
        """
        if isinstance(kind, ListOf):
            return kind
        key: Any = kind
        if isinstance(kind, Sharded):
            key = kind, id(kind.rows.input), id(kind.rows.of)
        return cast(AnyKind, self._kinds.setdefault(key, kind))

    def number_of(self, key: tuple[Any, ...], objects: Sequence[Any]) -> int:
        """Returns a number for a key and the identities of objects."""
        key = *key, *map(id, objects)
        new = len(self._numbers), objects
        return self._numbers.setdefault(key, new)[0]

    def of_nodes(self, planned: Sequence[Plans]) -> Mapping[Node, list[Plan]]:
        """Returns the plans of each node on some axes, also of those in bodies."""
        if not planned:
            return {}
        before, found = self._of_nodes
        if list(map(id, before)) != list(map(id, planned)):
            found = _of_nodes(planned)
            self._of_nodes = tuple(planned), found
        return found


LEAST_SHARED = 1 << 12
"""A product of whole values is sharded only if its larger factor has this many
elements: for fewer, sharding doesn't pay."""


class Planner:
    """Plans a graph and those of its loops and branches.

    Args:
        rows: List of the `Rows` by which inputs are sharded; others that occur
            are added.
        gathers: Whether operations on a batch's rows take whole weights, even
            if gathering these sends more; see `_with_whole_weights`.
        axis: Number of the planning axis that is planned.
        over: Its mesh axes.
        others: Plans of each node, also of those in bodies, on axes that
            are planned already.
        restores: Whether `Plans.stored` is recorded.
        cache: `PlanCache` of this graph, cost model and `gathers`. Default: a new
            one.
        before: Kinds that tensors have in a plan without all-to-alls, to which
            this plan can go back. Default: plans without, and ignores marks that
            need one.
        exchanges: Whether products may divide another axis, by all-to-alls.

    Attributes:
        lists: Kinds of lists, by the node that makes the list or the tensor
            that holds it.
    """

    def __init__(
        self,
        rows: list[Rows],
        cost: CostModel = table.DEFAULT_COST,
        gathers: bool = False,
        axis: int = 0,
        over: MeshAxes = (0,),
        others: Mapping[Node, Sequence[Plan]] = MappingProxyType({}),
        restores: bool = True,
        cache: PlanCache | None = None,
        before: Mapping[Tensor, Kind] | None = None,
        exchanges: bool = False,
    ) -> None:
        self._axis, self._over = axis, over
        self._before, self._exchanges = before, exchanges
        self._cache = cache or PlanCache()
        self._restores = restores
        self._others = others
        self.lists: dict[Node | Tensor, ListOf] = {}
        self._cost = cost
        self._gathers = gathers
        self._rows = rows
        self._summed: set[Tensor] = set()
        self._multiples: dict[Tensor, set[Tensor]] = {}
        self._state: set[Tensor] = set()
        self._changed = False
        self._outer: set[Node] = set()
        self._scattered: dict[Tensor, Sharded] = {}
        self._assigned: set[Tensor] = set()
        self._gathered: dict[Tensor, Sharded] = {}
        self._returned: dict[Tensor, Kind] = {}
        self._of_variables: set[Tensor] = set()
        self._has_rows = bool(rows)
        self._consumers: dict[Tensor, list[Node]] = {}
        self._primals: dict[Tensor, Tensor] = {}
        self._axes: dict[Node, table.Axes | None] = {}
        self._stretch: Stretch | None = None
        self._seen: dict[Tensor, _Seen] = {}
        self._begins: list[int] = []

    def plan(self, structure: Structure, kinds: Sequence[Kind]) -> Plans:
        """Plans a function's graph.

        Raises:
            RuntimeError: If the kinds don't settle.
        """
        graph = structure.graph
        self._outer = structure.outer
        self._consumers, self._primals = structure.consumers, structure.primals
        self._axes, assigned = structure.axes, structure.assigned
        self._scattered = _of_handles(graph, kinds, assigned, Sharded)
        self._assigned = set(_of_handles(graph, kinds, assigned, Replicated))
        self._begins = list(map(self._begins_with, self._cache.stretches))
        for _ in range(_MOST_PASSES):
            self._changed = False
            self._state = set()
            before = [made.kind for made in self.lists.values()]
            plans = self(graph, kinds)
            if self._before is not None:
                self._return_early(graph, plans)
            lists = [made.kind for made in self.lists.values()]
            if not self._changed and lists == before:
                return plans
        raise RuntimeError(
            f"Kinds of tensors did not settle in {_MOST_PASSES} passes."
        )

    def __call__(self, graph: Graph, kinds: Sequence[Kind]) -> Plans:
        """Plans a graph, or the body of a loop or branch, in one pass.

        Records the kinds of lists, and the sums to take, for the next pass.
        """
        plans = Plans()
        plans.kinds.update(zip(graph.inputs, kinds))
        structure = self._cache.structure
        if structure is None or graph is not structure.graph:
            self._plan_nodes(graph.nodes, plans)
        else:
            for stretch in self._cache.stretches:
                self._plan_stretch(stretch, plans)
        return plans

    def _begins_with(self, stretch: Stretch) -> int:
        """Returns a number for what all passes over a stretch begin with."""
        objects: list[Any] = list(map(self._scattered.get, stretch.tensors))
        if self._others:
            others = map(self._others.__getitem__, stretch.makers)
            objects += chain.from_iterable(others)
        if self._before is not None:
            objects += map(self._before.get, stretch.tensors)
        assigned = stretch.touched & self._assigned
        key = (
            stretch,
            self._axis,
            self._has_rows,
            self._before is None,
            self._exchanges,
            assigned,
        )
        return self._cache.number_of(key, objects)

    def _plan_stretch(self, stretch: Stretch, plans: Plans) -> None:
        """Plans some nodes, if they weren't planned from the same before."""
        if not stretch.is_kept:
            self._plan_nodes(stretch.nodes, plans)
            return
        touched = stretch.touched
        given = list(map(plans.kinds.get, stretch.given))
        stored = plans.stored
        key = (
            self._begins[stretch.number],
            touched & plans.free,
            touched & self._state,
            touched & self._of_variables,
            touched & self._summed,
            _identities(self._gathered, stretch),
            _identities(self._returned, stretch),
            tuple(map(stored.get, stretch.given)) if stored else (),
            tuple(map(id, self._rows)),
            *map(id, given),
        )
        for kept in self._cache.kept.get(key, ()):
            if all(
                _is_same(self._saw(tensor, stretch, plans), seen)
                for tensor, seen in kept.seen.items()
            ):
                self._take(kept, plans)
                return
        changed, rows = self._changed, tuple(self._rows)
        self._changed, self._stretch, self._seen = False, stretch, {}
        self._plan_nodes(stretch.nodes, plans)
        self._stretch = None
        # Rows that it adds are noted then, and kinds of lists change.
        if len(rows) == len(self._rows) and not any(
            isinstance(plans.kinds.get(tensor), ListOf)
            for tensor in stretch.tensors
        ):
            kept = self._what_changed(stretch, given, (*given, *rows), plans)
            self._cache.kept.setdefault(key, []).append(kept)
        self._changed |= changed

    def _what_changed(
        self,
        stretch: Stretch,
        given: Sequence[Kind | None],
        objects: tuple[Any, ...],
        plans: Plans,
    ) -> _Kept:
        """Returns what a pass over a stretch has made.

        Args:
            given: Kinds of `stretch.given` before it.
            objects: See `_Kept`.
        """
        before = dict(zip(stretch.given, given))
        of_stretch, tensors = Plans(), stretch.tensors
        of_stretch.nodes = {node: plans.nodes[node] for node in stretch.nodes}
        for tensor in tensors:
            kind = plans.kinds.get(tensor)
            if kind is not None and kind is not before.get(tensor):
                of_stretch.kinds[tensor] = kind
        of_stretch.free = set(stretch.touched & plans.free)
        of_stretch.stored = _some(plans.stored, tensors)
        changed = stretch.touched.union(self._seen)
        return _Kept(
            objects,
            self._seen,
            of_stretch,
            stretch.touched & self._state,
            stretch.touched & self._of_variables,
            changed & self._summed,
            _some(self._gathered, changed),
            {
                tensor: frozenset(its)
                for tensor, its in _some(self._multiples, changed).items()
            },
            self._changed,
        )

    def _take(self, kept: _Kept, plans: Plans) -> None:
        """Does what a pass over a stretch did that began with the same."""
        plans.nodes.update(kept.plans.nodes)
        plans.kinds.update(kept.plans.kinds)
        plans.free |= kept.plans.free
        plans.stored.update(kept.plans.stored)
        self._state |= kept.state
        self._of_variables |= kept.of_variables
        self._summed |= kept.summed
        self._gathered.update(kept.gathered)
        for tensor, multiples in kept.multiples.items():
            self._multiples[tensor] = set(multiples)
        self._changed |= kept.changed

    def _look(self, tensor: Tensor, plans: Plans) -> None:
        """Notes what a pass over a stretch sees of a tensor elsewhere."""
        if self._stretch is not None and tensor not in self._seen:
            self._seen[tensor] = self._saw(tensor, self._stretch, plans)

    def _saw(self, tensor: Tensor, stretch: Stretch, plans: Plans) -> _Seen:
        kind = None  # Those of tensors near by are in the key.
        if tensor not in stretch.touched:
            kind = plans.kinds.get(tensor)
        multiples = frozenset(self._multiples.get(tensor, ()))
        return kind, tensor in self._gathered, multiples

    def _plan_nodes(self, nodes: Sequence[Node], plans: Plans) -> None:
        """Plans nodes one after the other."""
        for node in nodes:
            if node.type == "Input":
                continue
            given = [plans.kinds[tensor] for tensor in node.inputs]
            planned = self._planned(node, given, plans)
            plan = planned.plan
            if planned.sums:
                self._note_sums(node, given, plan, plans)
            if planned.divides:
                self._gather_once(node, plans)
            if planned.gathers:
                self._gather_before(node, plan, plans)
            if planned.is_state:
                self._state.update(node.outputs)
            plans.nodes[node] = plan
            if (
                planned.is_given
                and self._gathered.keys().isdisjoint(node.outputs)
                and self._returned.keys().isdisjoint(node.outputs)
            ):
                plans.kinds.update(zip(node.outputs, plan.gives))
            else:
                self._note_outputs(node, plan, plans)
            if planned.is_free:
                plans.free.update(node.outputs)
            if self._restores:
                _note_stored(node, plan, plans)

    def _note_outputs(self, node: Node, plan: Plan, plans: Plans) -> None:
        """Records the kinds of outputs that sums and slices change."""
        for number, (tensor, kind) in enumerate(zip(node.outputs, plan.gives)):
            if isinstance(kind, Partial):
                self._note_part(tensor, node, plan)
                if tensor in self._summed or self._is_due(tensor):
                    kind = self._reduced(tensor, kind, plans)
            if tensor in self._gathered and isinstance(kind, Sharded):
                kind = REPLICATED
            elif tensor in self._returned:
                kind = self._returned[tensor]
            elif number in plan.sliced:
                kind = self._sliced(tensor, plan.sliced[number], plans)
            else:
                kind = self._resharded(tensor, kind, plan, plans)
            plans.kinds[tensor] = self._cache.once(kind)

    def _planned(self, node: Node, kinds: list[Kind], plans: Plans) -> _Planned:
        """Plans a node, if it wasn't planned from the same before."""
        if record(node.type).control is not None or any(
            isinstance(kind, ListOf) for kind in kinds
        ):
            return self._planned_anew(node, kinds, plans, ())
        free, state, stored = plans.free, self._state, plans.stored
        inputs, num_rows = node.inputs, len(self._rows)
        target = self._scattered.get(node.outputs[0]) if node.outputs else None
        objects = *kinds, *self._others.get(node, ()), target, *self._rows
        if self._before is not None:
            objects = *objects, *self._kinds_before(node, kinds)
        key = (
            node,
            self._axis,
            self._exchanges and Trait.PRODUCT in node.traits,
            self._has_rows,
            tuple([tensor in free for tensor in inputs]),
            tuple([tensor in state for tensor in inputs]),
            self._assigned.isdisjoint(node.outputs),
            tuple(map(stored.get, inputs)) if stored else (),
            *map(id, objects),
        )
        found = self._cache.planned.get(key)
        if found is None:
            found = self._planned_anew(node, kinds, plans, objects)
            if len(self._rows) == num_rows:  # Rows that it adds are noted then.
                self._cache.planned[key] = found
        return found

    def _planned_anew(
        self,
        node: Node,
        kinds: list[Kind],
        plans: Plans,
        objects: tuple[Any, ...],
    ) -> _Planned:
        plan = self._with_other_axes(node, kinds, plans)
        gives = tuple(map(self._cache.once, plan.gives))
        plan = dataclasses.replace(plan, gives=gives)
        is_given = not plan.sliced and all(
            not isinstance(kind, Partial) and (plan.rule or kind != REPLICATED)
            for kind in plan.gives
        )
        return _Planned(
            plan,
            objects,
            any(map(_is_summed, kinds, plan.wants)),
            self._divides_update(node, plan),
            any(map(_gathers_parts, kinds, plan.wants)),
            self._is_state(node, plan),
            self._is_free(node, kinds, plan, plans),
            is_given,
        )

    def _with_other_axes(
        self, node: Node, kinds: list[Kind], plans: Plans
    ) -> Plan:
        """Plans a node so that it goes with its plans on other mesh axes."""
        others = self._others.get(node, ())
        if not others:
            return self._by_itself(node, kinds, plans)
        if node.bodies:  # Its outputs' kinds come from those of the bodies.
            given = zip(*(other.wants for other in others))
            kinds = [
                REPLICATED if divides_one_axis(kind, its) else kind
                for kind, its in zip(kinds, given)
            ]
            return self._by_itself(node, kinds, plans)
        plan = self._by_itself(node, kinds, plans)
        if fits(plan, others):
            return plan
        for kind in (*plan.wants, *plan.gives):
            if isinstance(kind, ListOf):
                kind.must_be_whole()
        _require_no_sharded_handle(node, kinds)
        return table.whole(node)

    def is_taken(self, node: Node, number: int, kind: Kind | None) -> bool:
        """Whether other mesh axes divide the same axis of an output."""
        others = [other.gives[number] for other in self._others.get(node, ())]
        return divides_one_axis(kind, others)

    def _by_itself(self, node: Node, kinds: list[Kind], plans: Plans) -> Plan:
        """Plans a node as if there were no other mesh axis."""
        if is_known(node):  # Nothing is computed from the inputs.
            return table.Plan(tuple(kinds), (REPLICATED,) * len(node.outputs))
        if per_replica.applies(node, kinds):
            return per_replica.plan(
                node, kinds, lambda kinds: self._by_rules(node, kinds, plans)
            )
        return self._by_rules(node, kinds, plans)

    def _by_rules(
        self, node: Node, kinds: Sequence[Kind], plans: Plans
    ) -> Plan:
        known = record(node.type)
        if known.control is not None:
            return known.control(node, kinds, self)
        axes = layout_of(node)
        if axes is not None and not self._has_rows:
            plan = _as_laid_out(node, kinds, axes[self._axis], self._over)
            if self._before is None and is_exchanged(kinds[0], plan.wants[0]):
                return Plan(tuple(kinds), tuple(kinds))
            return plan
        # In loops and branches micro-batches don't take turns; in the branches
        # of sparse optimizers' updates the rows are needed whole anyway.
        if node in self._outer:
            target = node.outputs and self._scattered.get(node.outputs[0])
            exchanged = tables.exchange(node, kinds, target or None)
            if exchanged is not None:
                return exchanged
        if self._gathers and not tables.is_look_up(node, kinds):
            kinds = _with_whole_weights(node, kinds)
        kinds = list(kinds)
        found = [self._by_own_rule(node, kinds, plans)]
        by_rows = self._by_batch_rows(node, kinds)
        if by_rows != kinds:
            found.insert(0, self._by_own_rule(node, by_rows, plans))
        if self._before is not None:
            before = self._kinds_before(node, kinds)
            if before != kinds:
                found.append(self._by_own_rule(node, before, plans))
            found += self._exchanged(node, kinds)
        if len(found) == 1:
            return found[0]
        return min(found, key=lambda one: self._rank(node, kinds, one, plans))

    def _rank(
        self, node: Node, kinds: Sequence[Kind], plan: Plan, plans: Plans
    ) -> tuple[bool, float]:
        """Returns a sort key: divided work first, then the fewest bytes."""
        sent = self._cost.sent(
            node, kinds, plan.wants, plan.gives, stored=plans.stored
        )
        for tensor, kind in zip(node.outputs, plan.gives):
            if kind == PARTIAL:
                later = self._cost.bytes_of(self._summed_as(tensor))
                sent -= 2 * (self._cost.bytes_of(tensor) - later)
        return not plan.is_local, sent

    def _summed_as(self, tensor: Tensor) -> Tensor:
        """Returns what is all-reduced of a partial sum: its sum over other axes."""
        while True:
            nodes = self._consumers.get(tensor, ())
            if len(nodes) != 1 or not reductions.is_sum(nodes[0]):
                return tensor
            (tensor,) = nodes[0].outputs

    def _kinds_before(self, node: Node, kinds: Sequence[Kind]) -> list[Kind]:
        """Returns kinds with those of before the all-to-alls; see `before`.

        Attention that is divided by heads goes back to tokens, for instance.
        """
        before = cast(Mapping[Tensor, Kind], self._before)
        others = [before.get(tensor, REPLICATED) for tensor in node.inputs]
        return [
            other if is_exchanged(kind, other) else kind
            for kind, other in zip(kinds, others)
        ]

    def _exchanged(self, node: Node, kinds: Sequence[Kind]) -> Iterator[Plan]:
        """Yields a plan for a product of values whose different axes are divided.

        An axis that both have is divided instead: attention is divided by heads
        where queries and keys are divided by tokens (DeepSpeed Ulysses, Jacobs et
        al., 2023).
        """
        if not self._exchanges or not all(map(is_fixed, kinds)):
            return
        shared = shared_axis(node, self._cost.number_along(self._over))
        if shared is None:
            return
        axes, label, size = shared
        rows = Rows(size, are_of_variable=True, over=self._over)
        plan = table.by_label(node, axes, label, Sharded(0, rows))
        if plan is not None and fits(plan, self._others.get(node, ())):
            yield plan

    def _return_early(self, graph: Graph, plans: Plans) -> None:
        """Notes values that one all-to-all can divide anew for all consumers.

        It stands where the value is made, before reshapes. The gradient of a bias,
        for instance, is then summed over tokens, as that of its kernel is.
        """
        before = cast(Mapping[Tensor, Kind], self._before)
        for node in graph.nodes:
            if node not in plans.nodes:
                continue
            for tensor, want in zip(node.inputs, plans.nodes[node].wants):
                if not is_exchanged(plans.kinds[tensor], want):
                    continue
                while moves(tensor.node) and is_exchanged(
                    plans.kinds[tensor.node.inputs[0]],
                    before.get(tensor.node.inputs[0], REPLICATED),
                ):
                    tensor = tensor.node.inputs[0]
                kind = before.get(tensor, REPLICATED)
                if (
                    is_exchanged(plans.kinds[tensor], kind)
                    and tensor not in self._returned
                    and self._may_return(tensor, plans)
                ):
                    self._returned[tensor] = kind
                    self._changed = True

    def _may_return(self, tensor: Tensor, plans: Plans) -> bool:
        """Whether no product needs a value as it is divided where it is made."""
        return all(
            Trait.PRODUCT not in node.traits
            and (not moves(node) or self._may_return(node.outputs[0], plans))
            or is_exchanged(plans.kinds[tensor], want)
            for node in self._consumers.get(tensor, ())
            for given, want in zip(node.inputs, plans.nodes[node].wants)
            if given is tensor
        )

    def _by_batch_rows(self, node: Node, kinds: Sequence[Kind]) -> list[Kind]:
        """Returns kinds in which activations are sharded by a batch's rows.

        They replace kinds of activations that are sharded as a weight is, along
        an axis of a variable.
        """
        other: list[Kind] = []
        for tensor, kind in zip(node.inputs, kinds):
            if is_of_variable(kind) and tensor.dtype != tf.resource:
                kind = self._rows_of(tensor) or kind
            other.append(kind)
        return other

    def _by_own_rule(
        self, node: Node, kinds: Sequence[Kind], plans: Plans
    ) -> Plan:
        known = record(node.type)
        if any(isinstance(kind, ListOf) for kind in kinds):
            return lists.of_lists(node, kinds)
        if known.plan is not None:
            plan = known.plan(node, kinds)
            if plan is not None:
                return plan
        if all(kind == REPLICATED for kind in kinds):
            return (
                self._generated(node)
                or self._divided(node)
                or self._shared(node)
                or table.replicated(node)
            )
        axes = self._axes_of(node)
        if axes is not None:
            target = self._scattered.get(node.outputs[0])
            if self._gathers and _has_rows(kinds):
                target = None
            plan = table.by_axes(
                node,
                axes,
                kinds,
                plans.free,
                self._cost,
                target,
                plans.stored,
                self._is_gathered_later,
            )
            if plan is not None and not self._updates(node, plan, kinds):
                return plan
        _require_no_sharded_handle(node, kinds)
        if any(isinstance(kind, Sharded) for kind in kinds):
            return table.whole(node)
        return table.replicated(node)

    def _is_gathered_later(self, tensor: Tensor, axis: int) -> bool:
        """Whether a later operation needs an axis unsharded.

        Follows each tensor's first consumer through operations that keep the
        axis, such as from attention scores to their softmax.
        """
        for _ in range(_MOST_FOLLOWED):
            node = next(iter(self._consumers.get(tensor, ())), None)
            axes = None if node is None else self._axes_of(node)
            if node is None or axes is None or Trait.PRODUCT in node.traits:
                return False
            labels = axes.inputs[node.inputs.index(tensor)]
            if labels is None:
                return False
            if labels[axis] is None:
                return True
            if labels[axis] not in (axes.outputs[0] or ()):
                return False
            axis = axes.outputs[0].index(labels[axis])
            tensor = node.outputs[0]
        return False

    def _axes_of(self, node: Node) -> table.Axes | None:
        if node not in self._axes:
            self._axes[node] = table.axes_of(node)
        return self._axes[node]

    def _updates(self, node: Node, plan: Plan, kinds: Sequence[Kind]) -> bool:
        """Whether a plan adds a partial sum to values computed from variables.

        That is so in an optimizer's step: the gradient is summed first instead,
        so that the rest runs once and not on each replica. In loops such sums
        stay partial until the loop's end.
        """
        sums = [t for t, kind in zip(node.inputs, kinds) if kind == PARTIAL]
        return (
            plan.wants == (PARTIAL,) * len(kinds)
            and len(sums) == 1 < len(kinds)
            and node in self._outer
            and bool(node.outputs[0].shape)
            # A metric's sum, which is read, stays partial.
            and Trait.READS not in record(sums[0].node.type).traits
            and not self._state.isdisjoint(node.inputs)
        )

    def _divides_update(self, node: Node, plan: Plan) -> bool:
        """Whether an update of a whole variable runs on parts of it."""
        return not self._assigned.isdisjoint(node.outputs) and any(
            tensor in self._state and isinstance(want, Sharded)
            for tensor, want in zip(node.inputs, plan.wants)
        )

    def _gather_once(self, node: Node, plans: Plans) -> None:
        """Gathers a gradient in place of several values computed from it.

        Those of Adam are a weight and two slots.
        """
        for tensor in node.inputs:
            if not isinstance(plans.kinds[tensor], Sharded):
                continue
            source = self._shared_source(tensor, plans)
            if source is not None:
                self._gather(source, plans)

    def _gather_before(self, node: Node, plan: Plan, plans: Plans) -> None:
        """Gathers what is repeated later, as keys are for groups of queries."""
        for tensor, want in zip(node.inputs, plan.wants):
            if (
                not _gathers_parts(plans.kinds[tensor], want)
                or tensor in plans.free
                or tensor in plans.stored
            ):
                continue
            least, parts = tensor, [tensor]
            while len(parts) == 1:
                least = min(least, *parts, key=self._cost.bytes_of)
                made = parts[0].node
                for part in made.inputs:
                    self._look(part, plans)
                parts = [
                    part
                    for part in made.inputs
                    if {Trait.CHEAP, Trait.MOVES} <= made.traits
                    and is_of_variable(plans.kinds.get(part))
                ]
            if self._cost.bytes_of(least) < self._cost.bytes_of(tensor):
                self._gather(least, plans)

    def _gather(self, tensor: Tensor, plans: Plans) -> None:
        """Records that a divided tensor is gathered for all of its consumers."""
        self._look(tensor, plans)
        if tensor not in self._gathered:
            self._gathered[tensor] = cast(Sharded, plans.kinds[tensor])
            self._changed = True

    def _is_state(self, node: Node, plan: Plan) -> bool:
        """Whether outputs are whole and computed from variables."""
        traits = node.traits
        return plan.gives == (REPLICATED,) and (
            Trait.READS in traits
            or not self._state.isdisjoint(node.inputs)
            and (Trait.ELEMENTWISE in traits or node.type == "Pack")
        )

    def _generated(self, node: Node) -> Plan | None:
        """Plans that each replica generates its rows; `None` if it can't."""
        if Trait.GENERATES not in node.traits:
            return None
        sharded = self._rows_of(node.outputs[0])
        axes = self._axes_of(node)
        if sharded is None or axes is None:
            return None
        label = axes.outputs[0][sharded.axis]
        if label is None:
            return None
        return table.by_label(node, axes, label, sharded)

    def _divided(self, node: Node) -> Plan | None:
        """Plans a product of whole values that goes into a sharded variable.

        Each replica computes its part of the gradient, as of the weights behind
        logits that a loss needs whole. `None` if it doesn't go into one.
        """
        target = node.outputs and self._scattered.get(node.outputs[0])
        axes = self._axes_of(node)
        if (
            not target
            or axes is None
            or Trait.PRODUCT not in node.traits
            or self._is_small(node)
        ):
            return None
        label = axes.outputs[0][target.axis]
        if label is None:
            return None
        plan = table.by_label(node, axes, label, target)
        fits_others = plan and fits(plan, self._others.get(node, ()))
        return plan if fits_others else None

    def _is_small(self, node: Node) -> bool:
        """Whether dividing a product of whole values doesn't pay."""
        largest = max(map(self._cost.elements_of, node.inputs))
        return largest < LEAST_SHARED

    def _shared(self, node: Node) -> Plan | None:
        """Plans a product of whole values, sharded by an axis of unknown size.

        The rows that a mask selects are such an axis. They belong to no
        replica, but slicing them takes less time than computing the whole
        product on each. Returns `None` if there is no such axis, if sharding
        doesn't pay, and in loops and branches.
        """
        if Trait.PRODUCT not in node.traits or node not in self._outer:
            return None
        axes = self._axes_of(node)
        if axes is None or self._is_small(node):
            return None
        for label, size in axes.sizes_of_labels(node):
            if not isinstance(size, int) and label in axes.outputs[0]:
                rows = Rows(size, over=self._over)
                plan = table.by_label(node, axes, label, Sharded(0, rows))
                others = self._others.get(node, ())
                if plan is None or not fits(plan, others):
                    continue
                kind = Sharded(0, self._known(rows))
                return table.by_label(node, axes, label, kind)
        return None

    def _rows_of(self, tensor: Tensor) -> Sharded | None:
        """Returns how a tensor can be sharded by rows; `None` without rows."""
        for axis, size in enumerate(tensor.shape or ()):
            for rows in self._rows:
                if isinstance(rows.size, int) and axis > 0:
                    continue
                inner = sizes.divide(size, rows.size)
                if inner not in (None, 0) and not _tells(tensor, inner):
                    return Sharded(axis, rows, 1, inner)
        return None

    def _sliced(self, tensor: Tensor, kind: Sharded, plans: Plans) -> Sharded:
        """Records a whole value as free; returns the kind of its shards.

        It is free as in `Plans.free`: to have it whole costs no communication.
        """
        plans.free.add(tensor)
        return dataclasses.replace(kind, rows=self._known(kind.rows))

    def _known(self, rows: Rows) -> Rows:
        """Returns the recorded `Rows` equal to `rows`; records `rows` if new.

        Inputs with equal numbers of rows are sharded alike.
        """
        for known in self._rows:
            if known == rows:
                return known
        self._rows.append(rows)
        return rows

    def _resharded(
        self, tensor: Tensor, kind: Kind, plan: Plan, plans: Plans
    ) -> Kind:
        """Shards rows again that an operation without a rule made whole.

        Slicing them sends nothing; the tensor is recorded in `plans.free`.
        Returns the tensor's kind, unchanged for any other tensor.
        """
        if plan.rule or kind != REPLICATED:
            return kind
        sharded = self._rows_of(tensor)
        if sharded is None or tensor.dtype.is_integer and len(tensor.shape) < 1:
            return kind
        plans.free.add(tensor)
        return sharded

    def _note_sums(
        self, node: Node, kinds: Sequence[Kind], plan: Plan, plans: Plans
    ) -> None:
        """Records partial inputs that a plan needs whole.

        Sets their kinds to those that they are reduced to.
        """
        for tensor, kind, want in zip(node.inputs, kinds, plan.wants):
            if not _is_summed(kind, want):
                continue
            if tensor not in self._summed:
                self._summed.add(tensor)
                self._changed = True
                self._sum_once(tensor, plans)
            # Later consumers get the whole, too: a product of two parts would
            # need another sum.
            plans.kinds[tensor] = self._cache.once(
                self._reduced(tensor, cast(Partial, kind), plans)
            )

    def _sum_once(self, tensor: Tensor, plans: Plans) -> None:
        """Sums what two sums are multiples of in their place, as Lion has them.

        Args:
            tensor: Partial `Tensor` that is summed.
        """
        source = self._shared_source(tensor, plans)
        if source is not None:
            self._summed.add(source)

    def _shared_source(self, tensor: Tensor, plans: Plans) -> Tensor | None:
        """Returns what two tensors that are needed whole are computed from.

        It is of the same shape and kind. `None` for the first of the two.
        """
        source, kind = tensor, plans.kinds[tensor]
        while True:
            for part in source.node.inputs:
                self._look(part, plans)
            parts = [
                part
                for part in source.node.inputs
                if plans.kinds.get(part) == kind
            ]
            # Not in front of a cast, where sums are less precise.
            if len(parts) != 1 or (parts[0].shape, parts[0].dtype) != (
                tensor.shape,
                tensor.dtype,
            ):
                break
            if kind != PARTIAL and Trait.ELEMENTWISE not in source.node.traits:
                break
            (source,) = parts
        self._look(source, plans)
        multiples = self._multiples.setdefault(source, set())
        multiples.add(tensor)
        return source if len(multiples) > 1 else None

    def _reduced(self, tensor: Tensor, kind: Partial, plans: Plans) -> Kind:
        """Returns the kind to reduce a partial tensor to, for all consumers.

        The gradient of a divided value is divided in the same way.
        """
        if kind != PARTIAL:
            return REPLICATED
        if tensor in self._scattered:
            return self._scattered[tensor]
        if tensor not in self._of_variables:
            return REPLICATED
        rows = self._rows_of(tensor)
        if rows is not None:
            return rows
        primal = self._primals.get(tensor)
        of_primal = None if primal is None else plans.kinds.get(primal)
        if primal in self._gathered:
            of_primal = self._gathered[primal]
        if (
            type(of_primal) is not Sharded
            or of_primal.outer != 1
            or self.is_taken(tensor.node, tensor.index, of_primal)
        ):
            return REPLICATED
        return of_primal

    def _note_part(self, tensor: Tensor, node: Node, plan: Plan) -> None:
        """Records a partial output summed over an axis of a sharded variable.

        Also one that is computed from such a sum. `_reduced` shards it by the
        batch's rows if it has any, as activations do.
        """
        if any(map(is_of_variable, plan.wants)) or any(
            other in self._of_variables and isinstance(want, Partial)
            for other, want in zip(node.inputs, plan.wants)
        ):
            self._of_variables.add(tensor)

    def _is_due(self, tensor: Tensor) -> bool:
        """Whether a partial activation is summed where it is made.

        So without a batch's rows, where each replica has whole activations: one
        sum in place of one for each of the products with it, as the backward
        pass of a normalisation has them. The terms of a sum wait for it.
        """
        return (
            not self._has_rows
            and tensor in self._of_variables
            and tensor not in self._scattered
            and tensor.node in self._outer
            and not self._is_added(tensor)
        )

    def _is_added(self, tensor: Tensor) -> bool:
        """Whether a tensor is only a term of sums, moved before perhaps.

        Of a sum over some of its axes less is sent than of the tensor.
        """
        consumers = self._consumers.get(tensor, [])
        return bool(consumers) and all(
            Trait.ADDITIVE in node.traits
            or reductions.is_sum(node)
            or moves(node)
            and all(map(self._is_added, node.outputs))
            for node in consumers
        )

    def _is_free(
        self, node: Node, kinds: Sequence[Kind], plan: Plan, plans: Plans
    ) -> bool:
        """Whether replicas can cheaply compute sharded outputs whole."""
        return (
            not {Trait.CHEAP, Trait.GENERATES}.isdisjoint(node.traits)
            and any(isinstance(kind, Sharded) for kind in plan.gives)
            and all(
                kind == REPLICATED or tensor in plans.free
                for tensor, kind in zip(node.inputs, kinds)
            )
        )


def plan_mesh(
    graph: Graph,
    placements: Sequence[Placement],
    cost: CostModel = table.DEFAULT_COST,
    gathers: bool = False,
    planning_axes: Sequence[MeshAxes] = ((0,),),
    planned: tuple[Plans, ...] = (),
    cache: PlanCache | None = None,
    exchanges: bool = False,
) -> tuple[Plans, ...]:
    """Plans a function for a device mesh, one planning axis after the other.

    Each is planned by itself, but for plans that don't go with those before; see
    `rules/compatible.py`.

    Args:
        graph: The function's `Graph`, with its facts inferred.
        placements: For each of the function's inputs, a kind per planning axis.
        planning_axes: See `mesh.Mesh`.
        planned: Plans of the first axes, if there are any already.
        cache, exchanges: See `Planner`.

    Returns:
        The `Plans` of each planning axis. A tensor's placement is the tuple of its
        kinds in all of them.
    """
    if not placements:  # A function without inputs is replicated.
        plans = Planner([], cost, gathers).plan(Structure(graph), [])
        return (plans,) * len(planning_axes)
    made, cache = list(planned), cache or PlanCache()
    structure = cache.structure or Structure(graph)
    for axis, kinds in list(enumerate(zip(*placements)))[len(made) :]:
        over = planning_axes[axis]
        planner = functools.partial(
            Planner,
            cost=cost,
            gathers=gathers and axis == 0,
            axis=axis,
            over=over,
            others=cache.of_nodes(made),
            restores=len(planning_axes) == 1,
            cache=cache,
        )
        plans = planner(_rows_of_kinds(kinds)).plan(structure, kinds)
        if exchanges or _passes_marks(cache.marks(graph), plans, axis, over):
            plans = planner(
                _rows_of_kinds(kinds), before=plans.kinds, exchanges=exchanges
            ).plan(structure, kinds)
        made.append(plans)
    return tuple(made)


def _passes_marks(
    marks: Sequence[Node], plans: Plans, axis: int, over: MeshAxes
) -> bool:
    """Whether a plan leaves what marks divide along another axis as it is."""
    for node in marks:
        axes = cast(list[int | None], layout_of(node))
        given = [plans.kinds[tensor] for tensor in node.inputs]
        (want,) = _as_laid_out(node, given, axes[axis], over).wants
        if is_exchanged(given[0], want) and plans.nodes[node].wants != (want,):
            return True
    return False


def _of_nodes(planned: Sequence[Plans]) -> dict[Node, list[Plan]]:
    """Returns the plans of each node, also of those in bodies."""
    found: dict[Node, list[Plan]] = {}
    waiting = list(planned)
    while waiting:
        for node, plan in waiting.pop().nodes.items():
            found.setdefault(node, []).append(plan)
            waiting += plan.details or ()
    return found


def _rows_of_kinds(kinds: Sequence[Kind]) -> list[Rows]:
    """Returns the distinct `Rows` of batches by which inputs are sharded."""
    rows = [
        kind.rows
        for kind in kinds
        if isinstance(kind, Sharded) and not is_of_variable(kind)
    ]
    rows = [one.of for one in rows if one.of is not None] + rows
    return list(dict.fromkeys(rows))


def _of_handles(
    graph: Graph,
    kinds: Sequence[Kind],
    assigned: Mapping[Tensor, Sequence[Tensor]],
    wanted: type[Item],
) -> dict[Tensor, Item]:
    """Returns the kinds of the variables that tensors are assigned to.

    Partial sums that go into sharded variables only are reduce-scattered.

    Args:
        assigned: See `Structure`.
        wanted: Type of the kinds; tensors that go into no such variable have none.
    """
    handles = {
        tensor: kind
        for tensor, kind in zip(graph.inputs, kinds)
        if isinstance(kind, wanted)
    }
    found: dict[Tensor, Item] = {}
    for tensor, its in assigned.items():
        for handle in its:
            if handle in handles:
                found[tensor] = handles[handle]
                break
    return found


def _identities(
    kinds: Mapping[Tensor, Kind], stretch: Stretch
) -> tuple[int, ...]:
    """Returns those of the kinds of a stretch's tensors; none if it has no kind."""
    if stretch.touched.isdisjoint(kinds):
        return ()
    return tuple(map(id, map(kinds.get, stretch.tensors)))


def _is_same(one: _Seen, other: _Seen) -> bool:
    return one[0] is other[0] and one[1:] == other[1:]


def _some(
    items: Mapping[Tensor, Item], tensors: Iterable[Tensor]
) -> dict[Tensor, Item]:
    if not items:
        return {}
    return {tensor: items[tensor] for tensor in tensors if tensor in items}


def _note_stored(node: Node, plan: Plan, plans: Plans) -> None:
    """Records in `Plans.stored` what is read from variables, or computed from it.

    An `int8` kernel, for instance, is cast and scaled for the backward pass. Rows
    that a batch looks up aren't recorded: there may be fewer than in a variable.
    """
    traits = record(node.type).traits
    if len(node.outputs) != 1 or not is_of_variable(plan.gives[0]):
        return
    (made,) = node.outputs
    if made.num_bytes == float("inf"):
        return
    if Trait.READS in traits:
        plans.stored[made] = (made,)
    if {Trait.ELEMENTWISE, Trait.MOVES}.isdisjoint(traits) or node.controls:
        return
    found: dict[Tensor, None] = {}
    for tensor, want in zip(node.inputs, plan.wants):
        if plans.is_restored(tensor, want):
            found |= dict.fromkeys(plans.stored[tensor])
        elif plans.kinds[tensor] != REPLICATED and not isinstance(
            want, (LocalSizes, Replicated)
        ):
            return
    if found:
        plans.stored[made] = tuple(found)


def _as_laid_out(
    node: Node, kinds: Sequence[Kind], axis: int | None, over: MeshAxes
) -> Plan:
    """Plans a tensor that the program lays out along an axis of the mesh.

    Args:
        node: The mark; see `step/constraints.py`.
        axis: The tensor's axis to divide; the tensor is whole for `None`, and
            where the axis has neither a fixed size nor an input's length.
        over: The mesh axes along which to divide it.
    """
    (kind,), shape = kinds, node.inputs[0].shape
    size = None if axis is None or shape is None else shape[axis]
    want: Kind = REPLICATED
    if isinstance(kind, Sharded) and kind.axis == axis:
        want = kind
    elif axis is not None and (isinstance(size, int) or sizes.is_length(size)):
        rows = Rows(size, are_of_variable=True, over=over)
        want = Sharded(axis, rows)
    return Plan((want,), (want,))


def _has_rows(kinds: Sequence[Kind]) -> bool:
    """Whether some values are sharded by a batch's rows."""
    return any(
        isinstance(kind, Sharded) and not is_of_variable(kind) for kind in kinds
    )


def _with_whole_weights(node: Node, kinds: Sequence[Kind]) -> list[Kind]:
    """Returns `kinds`, with weights whole if any input has a batch's rows.

    Sending activations instead would need those of all micro-batches at once.
    """
    if not _has_rows(kinds):
        return list(kinds)
    return [
        REPLICATED
        if is_of_variable(kind) and tensor.dtype != tf.resource
        else kind
        for tensor, kind in zip(node.inputs, kinds)
    ]


def _require_no_sharded_handle(node: Node, kinds: Sequence[Kind]) -> None:
    for tensor, kind in zip(node.inputs, kinds):
        if is_of_variable(kind) and tensor.dtype == tf.resource:
            raise InputError(
                f"The operation {node.type} can't work on a sharded variable, "
                f"or its slots are sharded in another way. Received: "
                f"{node.name!r} of {tensor.node.name!r}; leave that variable "
                "whole with shard=function."
            )


def _gathers_parts(kind: Kind, want: Kind) -> bool:
    """Whether parts of a variable, or of what is laid out, are wanted whole."""
    return is_of_variable(kind) and want == REPLICATED


def _is_summed(kind: Kind, want: Kind) -> bool:
    """Whether an input is partial, and an operation wants its sum."""
    return isinstance(kind, Partial) and not isinstance(
        want, (PerReplica, Partial)
    )


def _tells(tensor: Tensor, size: "sizes.SizeLike | None") -> bool:
    """Whether a size becomes known only when the tensor is computed."""
    return isinstance(size, sizes.Size) and any(
        symbol.source is not None and symbol.source[0] is tensor
        for symbol in size.symbols
    )
