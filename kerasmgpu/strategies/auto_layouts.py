"""Layouts that are found when a model trains for the first time."""

import dataclasses
import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import keras
from absl import logging

from kerasmgpu._keras import made_variables
from kerasmgpu._keras.divided_inputs import named_inputs
from kerasmgpu.division import AxesToShard
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.sharded_variable import (
    ShardedVariable,
)
from kerasmgpu.strategies.divisible_variables import (
    DivisibleVariables,
    is_divisible_variable,
)
from kerasmgpu.strategies.found_layout import FoundLayout, search
from kerasmgpu.strategies.layout_search import most_divided
from kerasmgpu.strategies.layouts import Distribution, Layouts
from kerasmgpu.strategies.sharding import NewVariable

_ATTRIBUTE = "_kerasmgpu_is_laid_out"
"""Attribute of a Keras variable whose layout was found."""


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
        self._is_found = self._makes_slot = False
        self._models: weakref.WeakSet[keras.Model] = weakref.WeakSet()

    def _divides_variables(self) -> bool:
        return True

    def _axes(
        self, variable: NewVariable, reference: AxesToShard | None
    ) -> AxesToShard | None:
        if variable.spec is not None or reference is not None:
            return super()._axes(variable, reference)
        axes = most_divided(variable.shape, self.axes)
        return None if set(axes) == {None} else axes

    def _described(
        self, settings: Mapping[str, Any], value: Any
    ) -> NewVariable:
        variable = super()._described(settings, value)
        if self._is_found:
            return variable
        return dataclasses.replace(variable, spec=None)

    def is_offloaded(self, settings: Mapping[str, Any]) -> bool:
        is_slot = self.offloads and self._makes_slot
        return is_slot or super().is_offloaded(settings)

    def lay_out(
        self,
        model: keras.Model,
        trace: Callable[[], Program],
        rows: int,
        strategy: ExactStrategy,
    ) -> bool:
        """Finds the layout of a model, and divides its variables and inputs so.

        Does nothing for a model that is laid out already. Of one that got
        weights since, such as LoRA's, only these are laid out.

        Args:
            trace: Function that returns the `Program` of its training step;
                variables that the step makes exist then.

        Returns:
            Whether the step must be traced again, with other inputs.
        """
        if model in self._models and not _has_new_weights(model):
            return False
        program, mesh = trace(), self.distribution.device_mesh
        axes = dict(zip(mesh.axis_names, map(int, mesh.shape)))
        variables = DivisibleVariables(model, _kept_axes)
        data = b""
        if strategy.is_first_worker:
            data = _written(variables, program, rows, axes, self._memory)
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
        self._models.add(model)
        self._is_found = True
        try:
            with strategy.scope():
                self._divide(variables, found.layout_map(mesh))
        finally:
            self._is_found = self._makes_slot = False
        return self._divide_inputs(model, found)

    def _divide_inputs(self, model: keras.Model, found: FoundLayout) -> bool:
        """Lays out a model's inputs as was found; returns whether that is new."""
        layouts = self.distribution._layout_map
        is_new = False
        for key, _ in named_inputs(model):
            before = layouts.pop(key) if key in list(layouts) else None
            if key in found.layouts:
                layouts[key] = found.layouts[key]
            is_new |= (before and before.axes) != found.layouts.get(key)
        return is_new

    def _divide(
        self,
        variables: DivisibleVariables,
        layouts: keras.distribution.LayoutMap,
    ) -> None:
        """Makes those variables anew whose axes are others than they have."""
        mesh = self.distribution.device_mesh
        for number, one in enumerate(variables.variables):
            whole = [None] * len(one.shape)
            layout = layouts[one.path] or keras.distribution.TensorLayout(
                whole, mesh
            )
            axes = self.axes_of(layout.axes)
            keeps = number in variables.fixed
            for each in (one, *variables.slots[number]):
                setattr(each, _ATTRIBUTE, True)
                self._makes_slot = each is not one
                if keeps or each.value.shard_axes == axes:
                    made_variables.set_layout(each, layout)
                else:
                    made_variables.lay_out(each, layout)


def _has_new_weights(model: keras.Model) -> bool:
    """Whether a model that was laid out has weights that weren't."""
    return any(
        is_divisible_variable(one) and not hasattr(one, _ATTRIBUTE)
        for one in model.weights
    )


def _kept_axes(variables: list[Any]) -> AxesToShard | None:
    """Returns the axes of a variable that keeps them, else `None`.

    A variable keeps them if it is too short for the mesh, if another model has
    laid it out, and if a function of the user's own has captured it.

    Args:
        variables: A variable of Keras and its slots.
    """
    held = [one.value for one in variables]
    if not isinstance(held[0], ShardedVariable):
        return ()
    is_kept = any(getattr(one, _ATTRIBUTE, False) for one in variables) or any(
        not isinstance(one, ShardedVariable) or one.is_captured for one in held
    )
    return held[0].shard_axes if is_kept else None


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
