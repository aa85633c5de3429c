"""The variables of a model that a mesh can divide, and their layouts."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras

from kerasmgpu._keras import training_state
from kerasmgpu._keras.distribution_backend import sharding_of
from kerasmgpu._keras.layer_costs import whole_bytes
from kerasmgpu.division import (
    AxesToShard,
    elements_of_part,
    is_divisible,
)
from kerasmgpu.strategies.layout_search import Group, Layout


class DivisibleVariables:
    """The variables of a model that can be divided, with their slots.

    Args:
        fixed: Function that returns, for the values of a variable and its slots,
            the axes that they keep, empty for whole ones; `None` for those that
            can be laid out.
            Default: all can be.

    Attributes:
        model: The model.
        variables: List of Keras's variables.
        slots: For each, the optimizer's variables of the same shape.
        fixed: Maps numbers of variables to the axes that they keep.
        num_bytes: Bytes of all the model's variables and slots.
    """

    def __init__(
        self,
        model: keras.Model,
        fixed: Callable[[list[Any]], AxesToShard | None] = lambda _: None,
    ) -> None:
        self.model = model
        metrics = set(map(id, model.metrics_variables))
        every = {id(one): one for one in model.variables}
        self.variables, others = [], []
        for one in every.values():
            if is_divisible_variable(one):
                self.variables.append(one)
            elif id(one) not in metrics:
                others.append(one)
        self.slots: list[list[Any]] = [[] for _ in self.variables]
        numbers = {id(one): n for n, one in enumerate(self.variables)}
        for slot, weight in training_state.slots(model, self.variables):
            if weight is None or slot.shape != weight.shape:
                others.append(slot)
            else:
                self.slots[numbers[id(weight)]].append(slot)
        self.fixed: dict[int, AxesToShard] = {}
        for number, one in enumerate(self.variables):
            kept = fixed([one, *self.slots[number]])
            if kept is not None:
                self.fixed[number] = kept
        self._undivided = sum(map(whole_bytes, others))
        bytes_of = list(map(self.bytes_of, range(len(numbers))))
        self.num_bytes = self._undivided + sum(bytes_of)
        shapes = [tuple(one.shape) for one in self.variables]
        self._elements = [
            (shape, each // max(math.prod(shape), 1))
            for shape, each in zip(shapes, bytes_of)
        ]

    def bytes_of(self, number: int) -> int:
        """Bytes of a variable and its slots."""
        one = self.variables[number]
        return sum(map(whole_bytes, (one, *self.slots[number])))

    def held(self, layout: Layout, sizes: Sequence[int]) -> int:
        """Bytes of all variables on the device that holds most."""
        total = self._undivided
        for (shape, bytes_each), axes in zip(self._elements, layout):
            total += elements_of_part(shape, axes, sizes) * bytes_each
        return total

    def groups(self) -> list[Group]:
        """Returns the variables that repeat, such as those of equal blocks.

        Those that are fixed are in none.
        """
        found: dict[tuple[str, Any], list[int]] = {}
        for number, one in enumerate(self.variables):
            if number in self.fixed:
                continue
            key = _key(one.path), tuple(one.shape)
            found.setdefault(key, []).append(number)
        return [
            Group(
                tuple(each),
                shape,
                sum(map(self.bytes_of, each)),
                key.rpartition("/")[0].rpartition("/")[0],
            )
            for (key, shape), each in found.items()
        ]

    def named(
        self, layout: Layout, names: Sequence[str]
    ) -> dict[str, tuple[str | None, ...]]:
        """Returns a layout as keys of a `LayoutMap` and their values."""
        by_key: dict[str, dict[str, tuple[str | None, ...]]] = {}
        for one, axes in zip(self.variables, layout):
            spec: list[str | None] = [None] * len(one.shape)
            for name, axis in zip(names, axes):
                if axis is not None:
                    spec[axis] = name
            by_key.setdefault(_key(one.path), {})[one.path] = tuple(spec)
        paths = [one.path for one in self.variables]
        made: dict[str, tuple[str | None, ...]] = {}
        for specs in by_key.values():
            pattern = _pattern(list(specs))
            matching = {path for path in paths if re.fullmatch(pattern, path)}
            if len(set(specs.values())) == 1 and matching == set(specs):
                specs = {pattern: next(iter(specs.values()))}
            made.update(specs)
        return {key: spec for key, spec in made.items() if any(spec)}

    def whole(self, num_axes: int) -> Layout:
        """Returns the layout in which all that isn't fixed is whole."""
        whole = (None,) * num_axes
        return tuple(
            self.fixed.get(number) or whole
            for number in range(len(self.variables))
        )

    def laid_out(
        self, layouts: keras.distribution.LayoutMap, names: Sequence[str]
    ) -> Layout:
        """Returns the layout that a `LayoutMap` gives the variables."""
        made = list(self.whole(len(names)))
        for number, one in enumerate(self.variables):
            layout = layouts[one.path]
            if layout is not None and number not in self.fixed:
                spec = sharding_of(layout).spec
                made[number] = tuple(
                    spec.index(name) if name in spec else None for name in names
                )
        return tuple(made)


def is_divisible_variable(variable: Any) -> bool:
    """Whether a variable of Keras can be divided, as far as its type says."""
    dtype = keras.backend.standardize_dtype(variable.dtype)
    return bool(variable.shape) and is_divisible(dtype)


def _key(path: str) -> str:
    """Returns a path without its numbers: equal for layers that repeat."""
    return re.sub(r"_?\d+(?=/|$)", "", path)


def _pattern(paths: Sequence[str]) -> str:
    """Returns the regular expression of paths that differ in numbers only.

    >>> _pattern(["model/dense/kernel", "model/dense_1/kernel"])
    'model/dense(_?\\\\d+)?/kernel'
    """
    made = []
    for parts in zip(*(path.split("/") for path in paths)):
        pattern = re.escape(parts[0])
        if len(set(parts)) > 1:
            names = {re.sub(r"_?\d+$", "", part) for part in parts}
            pattern = re.escape(min(names)) + r"(_?\d+)?"
        made.append(pattern)
    return "/".join(made)
