"""Chooses which activations the backward pass computes again: `recompute=`.

What is kept is freed in the order of what it costs per byte, as in Chen et al.
(arXiv 1604.06174) and, for single tensors, Korthikanti et al. (arXiv
2205.05198): first what elementwise operations compute again, then products.
"""

import collections
import dataclasses
import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterator

from absl import logging

from kerasmgpu.flops.operations import flops_of, has_rule
from kerasmgpu.partitioner.rules.kinds import (
    PARTIAL,
    REPLICATED,
    LocalSizes,
    Sharded,
    is_of_batch,
    is_of_variable,
)
from kerasmgpu.partitioner.rules.tables import is_exchanged
from kerasmgpu.partitioner.runtime.costs import parts_of
from kerasmgpu.partitioner.runtime.one_device import content_of
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.partitioner.step.recompute import (
    Again,
    Passes,
    copies,
    levels_of,
    values_read,
)
from kerasmgpu.partitioner.step.records import Trait
from kerasmgpu.strategy_settings import recomputed

_FLOPS_PER_BYTE = 64
"""Operations of a product in the time in which an elementwise operation writes
a byte: 64 on an H100 in 32 bits (TF32), 60 on an A100; more in 16 bits."""

_FILLED = 0.95
"""Part of the memory that a step may take by the estimate, which is up to 5 %
lower than what `kerasmgpu memory` predicts."""

_MOST_TRIED = 32
"""Choices whose peaks are compared where none fits."""

_SMALL = 1 / 32
"""Rather than computed again, inputs of so small a part of a tensor are kept."""

_HELD = {"Const", "Input"}
"""Nodes whose outputs are in memory all the time."""

VIEWS = {"Bitcast", "EnsureShape", "ExpandDims", "Reshape", "Squeeze"}
"""Operations whose outputs share their first input's buffer."""


@dataclasses.dataclass(frozen=True)
class Recomputation:
    """Chooses the nodes that a step runs again.

    Args:
        policy: `"elementwise"`: all that needs no product; `"auto"`: as much as
            it takes for the step to fit.
        limit: Function that returns the bytes of a device that a step may take,
            or `None` if unknown; for `"auto"`.
    """

    policy: str
    limit: Callable[[], int | None]

    def __call__(self, program: Program) -> Again | None:
        """Returns the nodes to run again, of a program's trace."""
        choice = _Choice(program, self.policy == "elementwise")
        if not choice.passes.saved:
            return None
        if self.policy == "elementwise":
            while choice.extend():
                pass
            return _named(choice.again())
        limit = self.limit()
        if limit is None:
            logging.warning(
                "kerasmgpu: recompute='auto' recomputes nothing: the memory of "
                "the device is not known. Give it, such as recompute='24GiB'."
            )
            return None
        return _named(choice.fitting(int(_FILLED * limit)))


def recomputation_of(
    recompute: str | None, limit: Callable[[], int | None] = lambda: None
) -> Recomputation | None:
    """Returns what the argument `recompute` of a strategy asks for."""
    asked = recomputed(recompute)
    if isinstance(asked, int):
        return Recomputation("auto", lambda: asked)
    return None if asked is None else Recomputation(asked, limit)


def choices(
    policy: Recomputation | None, jit_compile: bool = False
) -> list[Callable[[Program], Again | None]]:
    """Returns what chooses nodes to run again: the model, then the strategy."""
    asked_for = _say_no_effect if jit_compile else _asked_for
    return [asked_for] if policy is None else [asked_for, policy]


def _asked_for(program: Program) -> Again | None:
    """Returns the nodes that `keras.RematScope` asks to run again."""
    if not _has_regions(program):
        return None
    passes = Passes(program.trace.graph)
    may = [n for n in passes.forward if n.regions and can_run_again(program, n)]
    levels = levels_of(passes, may, in_regions=True)
    found = {node for node, _ in copies(passes, levels)}
    return _named(found, in_regions=True)


def _say_no_effect(program: Program) -> None:
    if _has_regions(program):
        logging.warning(
            "kerasmgpu: keras.RematScope has no effect with jit_compile=True: "
            "XLA would merge what is computed twice."
        )


def _has_regions(program: Program) -> bool:
    return any(node.regions for node in program.trace.graph.nodes)


def _named(nodes: Collection[Node], in_regions: bool = False) -> Again | None:
    names = frozenset(node.name for node in nodes)
    return Again(names, in_regions) if names else None


def can_run_again(program: Program, node: Node) -> bool:
    """Whether a node can run again without communication or state."""
    if node.is_stateful or node.bodies or node.controls or not node.inputs:
        return False
    if any(t.shape is None or t.dtype.size == 0 for t in node.outputs):
        return False
    # What has no rows is small, or a sum of the replicas' rows.
    rows = not program.replicas.mesh.divides_rows
    for plans in program.plans:
        plan = plans.nodes.get(node)
        if plan is None or not plan.rule or plan.sliced:
            return False
        # Rows of a table that replicas send each other, and parts of a sum.
        if is_exchanged(plan) or PARTIAL in plan.gives:
            return False
        for tensor, want in zip(node.inputs, plan.wants):
            kind = plans.kinds.get(tensor)
            # The backward pass gathers a layer's weights in any case.
            is_gathered = (
                want == REPLICATED
                and is_of_variable(kind)
                and Trait.READS in tensor.node.traits
            )
            is_here = kind == want or isinstance(want, LocalSizes)
            if not is_here and not is_gathered:
                return False
        rows = rows or any(
            is_of_batch(plans.kinds.get(t)) for t in node.outputs
        )
    return rows


@dataclasses.dataclass(frozen=True)
class _Move:
    """Buffers to free at once.

    Attributes:
        roots: Their tensors.
        pivot: The result of a product to keep for it; `None` without one.
    """

    roots: tuple[Tensor, ...]
    pivot: Tensor | None = None


class _Choice:
    """Moves activations, one after the other, to those that are recomputed.

    Args:
        is_elementwise: Whether no product may be computed again.

    Attributes:
        passes: The `Passes` of its graph.
    """

    def __init__(self, program: Program, is_elementwise: bool) -> None:
        self._program = program
        self._mesh = mesh = program.replicas.mesh
        self._numbers_along = list(map(mesh.size, mesh.planning_axes))
        self._nodes = program.trace.graph.nodes
        self.passes = Passes(program.trace.graph)
        self._is_elementwise = is_elementwise
        self._roots: dict[Tensor, Tensor] = {}
        self._may = {
            node for node in self.passes.forward if can_run_again(program, node)
        }
        self._again: set[Node] = set()
        self._added: list[set[Node]] = []
        self._kept: dict[Tensor, set[Tensor]] = collections.defaultdict(set)
        for tensor in self.passes.saved:
            self._kept[self._root(tensor)].add(tensor)
        self._numbers = itertools.count()
        self._queue: list[tuple[float, int, _Move]] = []
        for root in self._kept:
            self._push(_Move((root,)))
        for move in self._around_products():
            self._push(move)

    def _push(self, move: "_Move") -> None:
        cost = self._cost(move)
        if cost is not None:
            number = next(self._numbers)
            heapq.heappush(self._queue, (cost, number, move))

    def _around_products(self) -> Iterator["_Move"]:
        """Yields moves that keep a product's result instead of others.

        These are all that elementwise operations compute of it, as the four
        tensors of a `gelu`.
        """
        readers = collections.defaultdict(list)
        for node in self._nodes:
            if node in self._may and not has_rule(node):
                for tensor in node.inputs:
                    readers[tensor] += node.outputs
        for node in self._nodes:
            if node not in self.passes.forward or not has_rule(node):
                continue
            made = node.outputs[0]
            seen, waiting = {made: None}, [made]
            while waiting:
                for tensor in readers[waiting.pop()]:
                    if tensor not in seen:
                        seen[tensor] = None
                        waiting.append(tensor)
            roots = dict.fromkeys(map(self._root, seen))
            found = [root for root in roots if root in self._kept]
            if found and self._root(made) not in self._kept:
                yield _Move(tuple(found), self._root(made))

    # What is kept --------------------------------------------------------

    def _root(self, tensor: Tensor) -> Tensor:
        """Returns the tensor whose buffer a tensor shares."""
        if tensor not in self._roots:
            node = tensor.node
            shares = node.type in VIEWS or (
                Trait.PASSES in node.traits and len(node.inputs) == 1
            )
            root = self._root(node.inputs[0]) if shares else tensor
            self._roots[tensor] = root
        return self._roots[tensor]

    def _order(self, tensor: Tensor) -> tuple[int, int]:
        return self.passes.position.get(tensor.node, -1), tensor.index

    def bytes_of(self, tensor: Tensor) -> int:
        """Returns the bytes of a replica's part of a tensor."""
        if tensor.dtype.name in ("resource", "variant", "string"):
            return 0
        if tensor.node.type in _HELD or Trait.READS in tensor.node.traits:
            return 0
        return self._part(tensor)

    def _part(self, tensor: Tensor, total: int | None = None) -> int:
        """Returns the bytes of a replica's part of a tensor of `total` bytes."""
        if total is None:
            total = self._program.cost.bytes_of(tensor)
        for plans in self._program.plans:
            kind = plans.kinds.get(tensor)
            if isinstance(kind, Sharded):
                total = -(-total // self._mesh.num_parts(kind.rows))
        return total

    # What it costs -------------------------------------------------------

    def _time(self, node: Node) -> float:
        """Returns the time of a node, in bytes written in the same time."""
        written = float(sum(map(self.bytes_of, node.outputs)))
        flops = flops_of(node) if has_rule(node) else None
        if flops is None:
            return written
        plans = [of_axis.nodes[node] for of_axis in self._program.plans]
        parts = parts_of(plans, self._numbers_along)
        value = self._program.cost.value_of(flops) / parts
        return written + value / _FLOPS_PER_BYTE

    def _closure(self, move: "_Move") -> tuple[set[Node], list[Tensor]] | None:
        """Returns the nodes that compute what is freed, and what they read.

        `None` if they can't run again.
        """
        roots = [root for root in move.roots if root in self._kept]
        small = sum(map(self.bytes_of, roots)) * _SMALL
        is_cheap = self._is_elementwise or move.pivot is not None
        nodes: set[Node] = set()
        reads: set[Tensor] = set()
        waiting = [t.node for root in roots for t in self._kept[root]]
        while waiting:
            node = waiting.pop()
            if node in nodes:
                continue
            if node not in self._may or (is_cheap and has_rule(node)):
                return None
            nodes.add(node)
            for tensor in node.inputs:
                own = self._root(tensor)
                is_read = own is move.pivot or not (
                    own in roots or tensor.node in self._again
                )
                if is_read and (
                    own is move.pivot
                    or own in self._kept
                    or tensor.node not in self._may
                    or self.bytes_of(own) <= small
                ):
                    reads.add(tensor)
                else:
                    waiting.append(tensor.node)
        return nodes, sorted(reads, key=self._order)

    def _cost(self, move: "_Move") -> float | None:
        """Returns the time per byte freed; `None` if nothing can be freed."""
        roots = [root for root in move.roots if root in self._kept]
        freed = sum(map(self.bytes_of, roots))
        if not freed or not all(map(self._is_late, roots)):
            return None
        closure = self._closure(move)
        if closure is None:
            return None
        nodes, reads = closure
        added = {self._root(tensor) for tensor in reads} - self._kept.keys()
        freed -= sum(map(self.bytes_of, added))
        return sum(map(self._time, nodes)) / freed if freed > 0 else None

    def _is_late(self, root: Tensor) -> bool:
        """Whether a gradient comes before all uses in the backward pass."""
        return all(
            self.passes.before(self.passes.due(reader)) is not None
            for tensor in self._kept[root]
            for reader in self.passes.saved.get(tensor, ())
        )

    def extend(self) -> bool:
        """Adds a step; returns whether there was anything left to free."""
        while self._queue:
            before, number, move = heapq.heappop(self._queue)
            cost, closure = self._cost(move), self._closure(move)
            if cost is None or closure is None:
                continue
            if self._queue and cost > max(before, self._queue[0][0]):
                heapq.heappush(self._queue, (cost, number, move))
                continue
            nodes, reads = closure
            self._added.append(nodes - self._again)
            self._again |= nodes
            for root in move.roots:
                self._kept.pop(root, None)
            roots = dict.fromkeys(map(self._root, reads))
            new = [root for root in roots if root not in self._kept]
            for tensor in reads:
                self._kept[self._root(tensor)].add(tensor)
            for root in new:
                self._push(_Move((root,)))
            return True
        return False

    @property
    def num_steps(self) -> int:
        """How often `extend` has added something."""
        return len(self._added)

    def again(self, steps: int | None = None) -> set[Node]:
        """Returns the nodes to run again after a number of steps, or all."""
        return set().union(*self._added[:steps])

    # Peaks ---------------------------------------------------------------

    def fitting(self, limit: int) -> set[Node]:
        """Returns the least to run again with which a step takes `limit` bytes.

        If nothing does, what takes least; then logs a warning.
        """
        every = max(1, len(self._queue) // _MOST_TRIED)
        peaks = {0: self.peak(())}
        while min(peaks.values()) > limit:
            before = self.num_steps
            while self.num_steps < before + every and self.extend():
                pass
            if self.num_steps == before:
                break
            peaks[self.num_steps] = self.peak(self._again)
        best = min(peaks, key=peaks.__getitem__)
        if peaks[best] > limit:
            logging.warning(
                "kerasmgpu: recompute='auto' frees what it can, and the step "
                "may take %.1f MiB, of %.1f MiB.",
                peaks[best] / 2**20,
                limit / 2**20,
            )
            return self.again(best)
        low = max((n for n in peaks if n < best), default=best)
        while best - low > 1:
            middle = (low + best) // 2
            if self.peak(self.again(middle)) <= limit:
                best = middle
            else:
                low = middle
        return self.again(best)

    def peak(self, again: Collection[Node]) -> int:
        """Estimates the peak bytes of a replica if a step runs nodes `again`."""
        passes = self.passes
        levels = levels_of(passes, again, in_regions=False)
        late = {node: at for (node, _), at in copies(passes, levels).items()}
        runs = [(passes.time(node), node, False) for node in self._nodes]
        runs += [(time, node, True) for node, time in late.items()]
        runs.sort(key=lambda run: run[0])
        # Buffers are named by their tensor, and whether a copy has made them.
        last: dict[tuple[Tensor, bool], int] = {}
        reads: list[set[tuple[Tensor, bool]]] = []
        for number, (_, node, is_copy) in enumerate(runs):
            is_late = is_copy or node not in passes.forward
            own = {
                (root, is_late and {t.node, root.node} <= late.keys())
                for t in values_read(node)
                for root in [self._root(t)]
            }
            own |= {
                (root, is_copy and root.node in late)
                for root in map(self._root, node.outputs)
            }
            reads.append(own)
            last.update(dict.fromkeys(own, number))
        alive = most = 0
        for number, (_, node, _) in enumerate(runs):
            made = sum(
                self.bytes_of(t) for t in node.outputs if self._root(t) is t
            )
            freed = sum(
                self.bytes_of(t)
                for t, _ in (
                    one for one in reads[number] if last[one] == number
                )
            )
            in_place = Trait.ELEMENTWISE in node.traits
            alive += made
            most = max(most, alive - (min(made, freed) if in_place else 0))
            alive -= freed
        return self._state() + most

    def _state(self) -> int:
        """Returns the bytes of a replica's variables and of its batch."""
        total = sum(map(self._part, self._program.trace.leaves))
        for tensor, outer in self._program.trace.captured:
            if tensor.dtype.name != "resource" or tensor.element is None:
                continue
            if tensor in self._program.offloaded:
                continue
            if (content := content_of(outer)) is not None:
                elements = math.prod(one or 0 for one in tensor.element)
                total += self._part(tensor, elements * content[1].size)
        return total
