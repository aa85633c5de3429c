"""Layouts of `keras.distribution`: which part of a variable each device holds."""

import difflib
import re
from typing import Any, TypeAlias

import keras
import numpy as np
from absl import logging

from kerasmgpu._keras.distribution_backend import (
    Axes,
    output_path,
    sharding_of,
)
from kerasmgpu._keras.divided_inputs import lays_out_batches
from kerasmgpu.division import AxesToShard
from kerasmgpu.errors import InputError
from kerasmgpu.strategies.sharding import NewVariable, Sharding

Distribution: TypeAlias = Any
"""A `keras.distribution.DataParallel`, `ModelParallel` or other `Distribution`."""

ABSTRACT: Any = keras.distribution.DataParallel.__base__
"""`Distribution`, which lays out nothing by itself."""

_NEAREST = 3
"""Most paths that are named for a key that matches nothing."""


class Layouts(Sharding):
    """Divides variables as a distribution lays them out.

    Mesh axes of size 1 divide nothing. If several are larger, rows and variables
    are divided along each as the layouts say, unless `joins_axes`: then all
    devices are one axis, and what a layout divides over some of them is divided
    over all. Slots are divided as their weights.

    Args:
        distribution: `keras.distribution.Distribution`. Its methods
            `get_data_layout` and `get_variable_layout` are asked.
        strict: Boolean, whether keys of its layout map that match nothing are
            an error instead of a warning.
    Attributes:
        devices: List of names of all devices of its mesh, such as `"CPU:0"`, in
            C order of `axes`.
        axes: Tuple of sizes of the mesh axes, that of the rows first. One if
            only one has several devices, or if no variable is divided.
        divides_variables: Whether its layouts may divide variables.
        divides_batches: Whether it may lay out more of a batch than its rows.

    Raises:
        InputError: If it is no distribution, names a device twice, or has no
            layout of data.
    """

    def __init__(
        self,
        distribution: Distribution,
        strict: bool = False,
    ) -> None:
        if not isinstance(distribution, ABSTRACT):
            raise InputError(
                "A distribution must be a keras.distribution.DataParallel, "
                f"ModelParallel or Distribution. Received: {distribution!r}"
            )
        mesh = distribution.device_mesh
        super().__init__("layouts", 0, lambda: self._mesh_sizes)
        self.distribution = distribution
        self.devices = [str(name).upper() for name in np.ravel(mesh.devices)]
        if len(set(self.devices)) < len(self.devices):
            raise InputError(
                "A device mesh must have different devices. Received: "
                f"{', '.join(self.devices)}"
            )
        self._mesh_sizes: tuple[int, ...] = (len(self.devices),)
        self._sizes = dict(zip(mesh.axis_names, mesh.shape))
        of_data = distribution.get_data_layout((len(self.devices), 1))
        rows, *_ = sharding_of(of_data).spec
        self.divides_rows = self._size(rows) > 1
        self._map = getattr(distribution, "_layout_map", None)
        self.divides_variables = self._divides_variables()
        self._strict = strict
        self._checked = False
        self._names = [name for name, size in self._sizes.items() if size > 1]
        self.divides_batches = lays_out_batches(distribution)
        if len(self._names) > 1 and (
            self.divides_variables or self.divides_batches
        ):
            self._keep_axes(rows)

    @property
    def mesh(self) -> dict[str, int]:
        """Sizes of the distribution's mesh axes by name."""
        return mesh_of(self.distribution) or {}

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Names of `axes`; empty for one axis."""
        return tuple(self._names) if len(self.axes) > 1 else ()

    @property
    def num_row_shares(self) -> int:
        """Number of parts into which a batch is divided by rows."""
        if not self.divides_rows:
            return 1
        return self.axes[0]

    def _size(self, axis: str | None) -> int:
        return 1 if axis is None else self._sizes[axis]

    def _divides_variables(self) -> bool:
        if isinstance(self.distribution, keras.distribution.DataParallel):
            return False
        if self._map is None:
            return True  # A distribution of the user's own.
        names = {name for layout in self._map.values() for name in layout.axes}
        return any(self._size(name) > 1 for name in names)

    def _keep_axes(self, rows: str | None) -> None:
        """Orders axes and devices so that the axis of the rows is the first."""
        mesh = self.distribution.device_mesh
        self._names.sort(key=lambda name: name != rows)
        self._mesh_sizes = tuple(self._sizes[name] for name in self._names)
        every = list(mesh.axis_names)
        first = [every.index(name) for name in self._names]
        order = [*first, *(n for n in range(len(every)) if n not in first)]
        devices = np.asarray(mesh.devices).reshape(mesh.shape)
        self.devices = [
            str(name).upper() for name in devices.transpose(order).ravel()
        ]

    def _axes(
        self, variable: NewVariable, reference: AxesToShard | None
    ) -> AxesToShard | None:
        if reference is not None or not self.divides_variables:
            return reference
        return self.axes_of(variable.spec or ())

    def axes_of(self, spec: Axes) -> AxesToShard | None:
        """Returns the axes that are divided of a variable with a layout.

        Args:
            spec: Mesh axis of each axis of the variable, or `None`.
        """
        if len(self.axes) == 1:
            sizes = [self._size(name) for name in spec]
            most = max(sizes, default=1)
            return (sizes.index(most),) if most > 1 else None
        axes = [
            spec.index(name) if name in spec else None for name in self._names
        ]
        return None if set(axes) == {None} else tuple(axes)

    def check_workers(self, num_workers: int) -> None:
        """Raises an `InputError` if workers have unequal numbers of devices."""
        each, left = divmod(len(self.devices), num_workers)
        if left or not each:
            raise InputError(
                "The devices of a mesh are those of all workers, as many of "
                f"each. Received: {len(self.devices)} devices, {num_workers} "
                "workers"
            )

    def check(self, model: keras.Model) -> None:
        """Warns, once, of keys of the layout map that match nothing in a model.

        Raises:
            InputError: If there are such keys, with `strict`.
        """
        layouts = self._map
        if layouts is None or self._checked:
            return
        paths = [variable.path for variable in model.variables]
        paths += map(output_path, model._flatten_layers())
        found = {id(layouts[path]) for path in paths}
        lines = [
            f"the key {key!r} of the layout map matches no variable and no "
            f"output of the model {model.name!r}.{_nearest(key, paths)}"
            for key in layouts
            if id(layouts[key]) not in found
        ]
        if lines and self._strict:
            raise InputError(
                "\n".join(lines) + "\nCorrect or remove the keys, or leave out "
                "strict=True to train with a warning: what they name stays whole"
            )
        self._checked = True
        for line in lines:
            logging.warning("kerasmgpu: %s", line)


def mesh_of(distribution: Distribution | None) -> dict[str, int] | None:
    """Returns the sizes of a distribution's mesh axes by name, for reports."""
    if distribution is None:
        return None
    mesh = distribution.device_mesh
    return dict(zip(mesh.axis_names, map(int, mesh.shape)))


def check_micro_batches(layouts: Layouts, micro_batches: int | str) -> None:
    """Raises an `InputError` if micro-batches have no rows to divide."""
    if micro_batches != 1 and not layouts.divides_rows:
        raise InputError(
            "micro_batches divides the rows of a batch, and this mesh has "
            "all rows on each device. Received: "
            f"micro_batches={micro_batches!r} and {layouts.distribution}; leave "
            "it out, or give the mesh's batch axis more than one device."
        )


def _nearest(key: str, paths: list[str]) -> str:
    """Returns sentences on the paths that a key without match may mean."""
    partly = [path for path in paths if _occurs(key, path)]
    nearest = partly or difflib.get_close_matches(key, paths, _NEAREST)
    named = ", ".join(map(repr, nearest[:_NEAREST]))
    text = f" Nearest: {named}." if nearest else ""
    if partly:
        version = f"Keras {keras.__version__}"
        text += f" {version} matches whole paths: use '.*{key}.*'."
    return text


def _occurs(key: str, path: str) -> bool:
    """Whether a pattern matches a part of a path."""
    try:
        return re.search(key, path) is not None
    except re.error:
        return False
