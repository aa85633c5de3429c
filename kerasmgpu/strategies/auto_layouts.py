"""Layouts that are found when a model trains for the first time."""

import dataclasses
import json
import weakref
from typing import Any

import keras
from absl import logging

from kerasmgpu._keras import made_variables
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.mesh import block_of
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.sharded_variable import AxesToShard
from kerasmgpu.strategies.divisible_variables import DivisibleVariables
from kerasmgpu.strategies.found_layout import FoundLayout, search
from kerasmgpu.strategies.layout_search import most_divided
from kerasmgpu.strategies.layouts import Distribution, Layouts
from kerasmgpu.strategies.sharding import NewVariable


class AutoLayouts(Layouts):
    """Divides variables as `found_layout.search` finds for a model's step.

    Until then, each is divided as far as the mesh can: no device ever holds a
    whole model.

    Args:
        distribution: `keras.distribution.ModelParallel` without layouts.
        memory: See `find_layout`.

    Attributes:
        found: The last `FoundLayout`, or `None`.
    """

    found: FoundLayout | None = None

    def __init__(self, distribution: Distribution, memory: int | None) -> None:
        super().__init__(distribution)
        self._memory = memory
        self._is_found = False
        self._models: weakref.WeakSet[keras.Model] = weakref.WeakSet()

    def _divides_variables(self) -> bool:
        return True

    def _axes(
        self, variable: NewVariable, reference: AxesToShard | None
    ) -> AxesToShard | None:
        if self._is_found or reference is not None:
            return super()._axes(variable, reference)
        sizes = self.axes or (len(self.devices),)
        axes = most_divided(variable.shape, sizes)
        return None if set(axes) == {None} else axes

    def lay_out(
        self,
        model: keras.Model,
        program: Program,
        rows: int,
        strategy: ExactStrategy,
    ) -> bool:
        """Finds the layout of a model, and divides its variables so.

        Args:
            model: `keras.Model` with all its variables.
            program: `Program` of its training step.
            rows: Integer, rows of a global batch.
            strategy: The strategy that trains it.

        Returns:
            Whether that changed its variables: `False` for a model that is laid
            out already.
        """
        if model in self._models:
            return False
        self._models.add(model)
        mesh = self.distribution.device_mesh
        axes = dict(zip(mesh.axis_names, map(int, mesh.shape)))
        data = b""
        if strategy.is_first_worker:
            data = _written(model, program, rows, axes, self._memory)
        if strategy.num_workers > 1:
            data = strategy.from_first_worker(data)
        self.found = found = _read(data)
        logging.warning(
            "kerasmgpu: the layout of %r on the mesh %s is the best of %d for "
            "batches of %d rows: each device holds %s of %s bytes of variables, "
            "and sends %s in a step. print(strategy.found_layout) shows it.",
            model.name,
            axes,
            found.tried,
            rows,
            f"{found.held:,}",
            f"{found.whole:,}",
            f"{sum(found.sent.values()):,}",
        )
        layouts = found.layout_map(mesh)
        weights = DivisibleVariables(model)
        self._is_found = True
        try:
            with strategy.scope():
                for one, slots in zip(weights.variables, weights.slots):
                    layout = layouts[one.path] or _whole(one, mesh)
                    for variable in (one, *slots):
                        made_variables.lay_out(variable, layout)
        finally:
            self._is_found = False
        return True


def auto_layouts_of(
    distribution: Distribution,
    num_workers: int,
    micro_batches: int | str,
    memory: int | None,
) -> AutoLayouts:
    """Returns the layouts that a job finds; arguments as for `layouts_of`.

    Raises:
        InputError: If there are micro-batches, or workers have no blocks of the
            mesh.
    """
    layouts = AutoLayouts(distribution, memory)
    each, left = divmod(len(layouts.devices), num_workers)
    axes = layouts.axes or (len(layouts.devices),)
    if micro_batches != 1 or left or not each or block_of(axes, each) is None:
        raise InputError(
            'layout="auto" is for micro_batches=1, and for workers that each '
            "have a block of the mesh. Received: "
            f"micro_batches={micro_batches!r}, {num_workers} workers, a mesh of "
            f"{'x'.join(map(str, axes))}; give the layout as a dictionary"
        )
    return layouts


def _whole(variable: Any, mesh: Any) -> keras.distribution.TensorLayout:
    return keras.distribution.TensorLayout([None] * len(variable.shape), mesh)


def _written(*arguments: Any) -> bytes:
    """Returns the layout that is found, or why there is none, as JSON."""
    try:
        found: Any = dataclasses.asdict(search(*arguments))
    except InputError as error:
        found = str(error)
    return json.dumps(found).encode()


def _read(data: bytes) -> FoundLayout:
    """Returns the `FoundLayout` of `_written`, or raises its error."""
    found = json.loads(data)
    if isinstance(found, str):
        raise InputError(found)
    layouts = {key: tuple(spec) for key, spec in found["layouts"].items()}
    return FoundLayout(**{**found, "layouts": layouts})
