"""Counts FLOPs and bytes of a training step for any layout of its variables."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from kerasmgpu.flops.operations import flops_of, has_rule
from kerasmgpu.partitioner.ir.lowered import Form
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.passes.sending import NeedsCache
from kerasmgpu.partitioner.planning.planner import PlanCache
from kerasmgpu.partitioner.rules.table import Plans
from kerasmgpu.partitioner.runtime.costs import Costs, planned
from kerasmgpu.partitioner.runtime.one_device import captured_variable
from kerasmgpu.partitioner.runtime.planned_trace import PlannedTrace
from kerasmgpu.partitioner.step.graph import Node, Tensor
from kerasmgpu.strategies.divisible_variables import DivisibleVariables
from kerasmgpu.strategies.layout_search import Cost, Layout

_FIRST_LINE_SECONDS, _SECONDS_BETWEEN_LINES = 2.0, 10.0
_HOST = "/device:CPU:0"


class ImaginedSteps:
    """Counts what a device computes, sends and holds in a step, for any layout.

    Args:
        axes: Sizes of the mesh axes that are larger than 1.
        rows_name: Name of the axis that rows are divided along.
        rows: Rows of a global batch.
        slowness: For each name of an axis, what a byte along it counts.
        inputs: Numbers of the leaves of its arguments that a layout divides,
            behind the variables.
    """

    def __init__(
        self,
        program: PlannedTrace,
        weights: DivisibleVariables,
        axes: dict[str, int],
        rows_name: str,
        rows: int,
        slowness: Mapping[str, float],
        inputs: Sequence[int] = (),
    ) -> None:
        self.rows_axis = (
            list(axes).index(rows_name) if rows_name in axes else None
        )
        self._weights, self._axes, self._rows = weights, axes, rows
        self._slowness = [slowness[name] for name in axes]
        numbers = {
            id(one.value): number
            for number, variable in enumerate(weights.variables)
            for one in (variable, *weights.slots[number])
        }

        def number_of(outer: Any) -> int | None:
            return numbers.get(id(captured_variable(outer)))

        num = math.prod(axes.values())
        mesh = Mesh.on(
            [f"/device:GPU:{number}" for number in range(num)],
            _HOST,
            divides_rows=self.rows_axis is not None,
            axes=tuple(axes.values()),
        )
        whole = (None,) * len(axes)
        trace = program.trace.imagined(
            lambda outer: () if number_of(outer) is None else whole
        )
        shapes = [
            (rows, *leaf.static[1:]) if leaf.static else ()
            for leaf in trace.leaves
        ]
        self._planned = PlannedTrace(trace, Replicas(mesh), first_batch=shapes)
        self._numbers: dict[Tensor, int] = {}
        for tensor, imagined in trace.captured:
            number = number_of(imagined.tensor)
            if number is not None:
                self._numbers[tensor] = number
        for number, leaf in enumerate(inputs, len(weights.variables)):
            self._numbers[trace.leaves[leaf]] = number
        self._products = dict(_products(self._planned))
        self._known: dict[Any, tuple[Plans, ...]] = {}
        self._cache = PlanCache(trace.graph)
        self._needs = NeedsCache(trace.graph, self._cache.stretches)
        self._count, self._says_at = 0, time.monotonic() + _FIRST_LINE_SECONDS

    def cost(self, layout: Layout) -> Cost:
        """Returns what a layout costs."""
        costs = self._laid_out(layout).costs(self._rows)
        parts = costs.parts(self._products)
        flops = sum(
            flops / parts[node] for node, flops in self._products.items()
        )
        weighted = sum(
            number * self._slowness[over]
            for over, number in costs.sent_along().items()
        )
        self._tell()
        sizes = tuple(self._axes.values())
        share = sum(self._products.values()) / math.prod(sizes)
        held = self._weights.held(layout, sizes)
        return Cost(flops, share, weighted, held)

    def sent(self, layout: Layout) -> dict[str, int]:
        """Returns the bytes that a device sends along each axis."""
        sent = self._laid_out(layout).costs(self._rows).sent_along()
        return {name: sent[over] for over, name in enumerate(self._axes)}

    def rings(self, layout: Layout) -> dict[str, float]:
        """Returns the all-reduces along each axis; others count half a one."""
        rings = Costs(self._laid_out(layout).lowered(Form())).rings_along()
        return {name: rings[over] / 2 for over, name in enumerate(self._axes)}

    def _tell(self) -> None:
        """Logs how many layouts were tried, after two seconds and later."""
        self._count += 1
        now = time.monotonic()
        if now >= self._says_at:
            self._says_at = now + _SECONDS_BETWEEN_LINES
            logging.warning(
                "kerasmgpu: looking for a layout on %s: %d compared so far.",
                "x".join(map(str, self._axes.values())),
                self._count,
            )

    def _laid_out(self, layout: Layout) -> PlannedTrace:
        """Returns the plan of a layout; plans of first axes are kept."""
        known: tuple[Plans, ...] = ()
        for over in range(1, len(self._axes)):
            key = tuple(axes[:over] for axes in layout)
            known = self._known.get(key, known)
        axes_of = {
            tensor: layout[number] for tensor, number in self._numbers.items()
        }
        made = self._planned.laid_out(axes_of, known, self._cache, self._needs)
        for over in range(1, len(self._axes)):
            key = tuple(axes[:over] for axes in layout)
            self._known[key] = made.plans[:over]
        return made


def _products(program: PlannedTrace) -> Iterator[tuple[Node, int]]:
    """Yields the counted operations of a step, and how many each has."""
    for node, _ in planned(program.trace.graph, program.plans):
        count = flops_of(node) if has_rule(node) else None
        if count is not None:
            yield node, program.cost.value_of(count)
