"""Counts the FLOPs of the step that a strategy trains."""

import weakref

from kerasmgpu.flops.counting import count
from kerasmgpu.flops.step_flops import StepFlops
from kerasmgpu.partitioner.step.graph import Graph


class TrainedStep:
    """Counts the FLOPs of a strategy's last step, when they are read.

    Counting takes a fraction of the time of tracing, and never runs in a step.

    Attributes:
        rows: Integer, rows of a global batch; `None` where they are unknown.
    """

    def __init__(self) -> None:
        self.rows: int | None = None
        self._graph: weakref.ref[Graph] | None = None
        self._flops: StepFlops | None = None

    def set(self, graph: Graph, rows: int | None) -> None:
        """Sets the step, without keeping its graph alive."""
        self.rows = rows
        if self._graph is None or self._graph() is not graph:
            self._graph, self._flops = weakref.ref(graph), None

    @property
    def flops(self) -> StepFlops | None:
        """The step's FLOPs, counted when first read; `None` without a step.

        That is before one is traced, or if its graph was freed before it was
        counted.
        """
        graph = None if self._graph is None else self._graph()
        if self._flops is None and graph is not None:
            self._flops = count(graph)
        return self._flops

    @property
    def per_step(self) -> int | None:
        """Integer, model FLOPs of a step; `None` if they are unknown."""
        total = None if self.flops is None else self.flops.total(self.rows)
        return None if total is None else int(total)
