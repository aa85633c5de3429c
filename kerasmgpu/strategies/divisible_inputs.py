"""The inputs of a model whose inner axes a mesh can divide, and their layouts."""

from collections.abc import Iterator, Sequence

import keras

from kerasmgpu._keras.distribution_backend import sharding_of
from kerasmgpu._keras.divided_inputs import named_inputs
from kerasmgpu.division import AxesToShard
from kerasmgpu.partitioner.runtime.tracing import Trace
from kerasmgpu.strategies.layout_search import Layout


class DivisibleInputs:
    """The inputs of a model that a step takes as they are.

    They are none for a model without named inputs, as a subclass of `keras.Model`,
    and where a batch has other tensors than the model declares.

    Args:
        trace: `Trace` of the model's training step.

    Attributes:
        keys: List of their keys in a `LayoutMap`: `"tokens/output"`.
        numbers: For each, its number among the leaves of the trace.
    """

    def __init__(self, model: keras.Model, trace: Trace) -> None:
        named = named_inputs(model)
        shapes = [leaf.static for leaf in trace.leaves[: len(named)]]
        declared = [tuple(tensor.shape) for _, tensor in named]
        if [one and one[1:] for one in shapes] != [one[1:] for one in declared]:
            named, declared = [], []
        self.keys = [key for key, _ in named]
        self.numbers = range(len(named))
        self._shapes = declared

    def whole(self, num_axes: int) -> Layout:
        """Returns the layout in which all are whole but for their rows."""
        return ((None,) * num_axes,) * len(self.keys)

    def divided(
        self, sizes: Sequence[int], rows_axis: int | None
    ) -> Iterator[Layout]:
        """Yields layouts in which inner axes of one length are divided.

        Inputs of as many tokens go together, such as words and their positions.

        Args:
            sizes: Sizes of the mesh axes.
            rows_axis: The one that rows are divided along, or `None`.
        """
        lengths = {n: None for shape in self._shapes for n in shape[1:] if n}
        for over, size in enumerate(sizes):
            for length in lengths:
                if over == rows_axis or length < size:
                    continue
                made = []
                for shape, whole in zip(self._shapes, self.whole(len(sizes))):
                    axis = (
                        shape.index(length, 1) if length in shape[1:] else None
                    )
                    made.append((*whole[:over], axis, *whole[over + 1 :]))
                yield tuple(made)

    def named(
        self, layout: Layout, names: Sequence[str], rows_axis: int | None
    ) -> dict[str, tuple[str | None, ...]]:
        """Returns a layout as keys of a `LayoutMap` and their values."""
        found = {}
        for key, shape, axes in zip(self.keys, self._shapes, layout):
            if set(axes) <= {None}:
                continue
            spec: list[str | None] = [None] * len(shape)
            if rows_axis is not None:
                spec[0] = names[rows_axis]
            for name, axis in zip(names, axes):
                if axis is not None:
                    spec[axis] = name
            found[key] = tuple(spec)
        return found

    def laid_out(
        self, layouts: keras.distribution.LayoutMap, names: Sequence[str]
    ) -> Layout:
        """Returns the layout that a `LayoutMap` gives them."""
        made = list(self.whole(len(names)))
        for number, key in enumerate(self.keys):
            if key in list(layouts):
                spec = sharding_of(layouts[key]).spec
                axes: AxesToShard = tuple(
                    spec.index(name) if name in spec[1:] else None
                    for name in names
                )
                made[number] = axes
        return tuple(made)
