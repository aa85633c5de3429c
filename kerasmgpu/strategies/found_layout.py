"""Finds the layout of a model's variables on a device mesh."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import keras

from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    checked_integer,
    shown,
)
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.partitioner.runtime.tracing import without_garbage_collection
from kerasmgpu.replica_arithmetic import checked_mesh
from kerasmgpu.strategies.divisible_inputs import DivisibleInputs
from kerasmgpu.strategies.divisible_variables import DivisibleVariables
from kerasmgpu.strategies.imagined_steps import ImaginedSteps
from kerasmgpu.strategies.layout_report import checked_model, prepared_step
from kerasmgpu.strategies.layout_search import Search

MeshLike: TypeAlias = Sequence[int] | keras.distribution.DeviceMesh


@dataclasses.dataclass(frozen=True)
class FoundLayout:
    """A layout of a model's variables, and what it costs.

    `print(found)` shows it as the lines of a program of `keras.distribution`.

    Attributes:
        axes: Dictionary from the names of the mesh's axes to their sizes; rows
            are divided along the first one.
        layouts: Dictionary from keys of a `keras.distribution.LayoutMap` to
            tuples of names of axes and `None`. Other variables are whole, and
            inputs without a key are divided by rows only.
        held: Integer, bytes of variables and slots on the device that holds most.
        whole: Integer, bytes of all variables and slots.
        sent: Dictionary from names of axes to bytes that each device sends
            along them in a step.
        flops: Float, floating-point operations of products on each device in
            a step.
        tried: Integer, number of layouts that were compared.
    """

    axes: dict[str, int]
    layouts: dict[str, tuple[str | None, ...]]
    held: int
    whole: int
    sent: dict[str, int]
    flops: float
    tried: int

    def layout_map(
        self, device_mesh: keras.distribution.DeviceMesh
    ) -> keras.distribution.LayoutMap:
        """Returns the layouts as Keras takes them.

        Args:
            device_mesh: `keras.distribution.DeviceMesh` with these axes.
        """
        made = keras.distribution.LayoutMap(device_mesh)
        for key, axes in self.layouts.items():
            made[key] = axes
        return made

    def __str__(self) -> str:
        sent = ", ".join(
            f"{number:,} along {name!r}" for name, number in self.sent.items()
        )
        lines = [
            f"# {self.tried} layouts compared. On each device {self.held:,} of "
            f"{self.whole:,} bytes;",
            f"# in a step it sends {sent or 'nothing'}, and computes "
            f"{self.flops:.3g} FLOPs.",
            "import keras",
            "import kerasmgpu",
            f"mesh = keras.distribution.DeviceMesh({tuple(self.axes.values())}, "
            f"{tuple(self.axes)})",
            "layouts = keras.distribution.LayoutMap(mesh)",
        ]
        lines += [
            f"layouts[{key!r}] = {axes}" for key, axes in self.layouts.items()
        ]
        lines += [
            "keras.distribution.set_distribution(",
            "    keras.distribution.ModelParallel(",
            "        layout_map=layouts, "
            f"batch_dim_name={next(iter(self.axes))!r}",
            "    )",
            ")",
        ]
        return "\n".join(lines)


@checked_arguments
def find_layout(
    model: keras.Model,
    batch: Any,
    mesh: MeshLike,
    *,
    memory: int | None = None,
    links: Sequence[float] | None = None,
    start: keras.distribution.LayoutMap | None = None,
) -> FoundLayout:
    """Finds how to divide a model's variables, and batches, over a mesh of devices.

    The training step is traced once, and planned for layout after layout; none
    runs, and the devices needn't exist. Products are divided first; then a
    device sends and holds as little as can be, where a byte that is held counts
    as one that is sent in a step. Rows are divided along the first axis;
    variables along the others, and also along the first one where that sends
    less, as for tables, or if they don't fit otherwise (`memory`). Tokens, or
    other inner axes of named inputs, are divided along one of the others where
    that is cheaper, as with few long rows.

    Args:
        model: Compiled `keras.Model` that was built under a strategy of
            kerasmgpu, such as `kerasmgpu.strategy(num_replicas=1)`.
        batch: A global batch, as for `model.train_on_batch`: arrays `x`,
            `(x, y)` or `(x, y, sample_weight)`.
        mesh: Sizes of the mesh axes, `(2, 4)`, whose names are then `"batch"`
            and `"model"`; or a `keras.distribution.DeviceMesh`.
        memory: Integer, bytes that a device has for variables and the
            optimizer's slots. Default: no bound.
        links: Bytes per second along each mesh axis, in any unit: a slow one's
            bytes count more. Default: all the same.
        start: A `keras.distribution.LayoutMap` that the search begins with,
            too: the result is never worse.

    Returns:
        A `FoundLayout`.

    Raises:
        InputError: If the model was built elsewhere or isn't compiled, an
            argument is invalid, or no layout fits into `memory`.

    Example:

    ```python
    found = kerasmgpu.find_layout(model, (x[:256], y[:256]), (2, 4))
    print(found)  # the lines that make this LayoutMap
    ```
    """
    checked_model(model, "find_layout")
    axes = named_axes(mesh)
    if start is not None and not isinstance(
        start, keras.distribution.LayoutMap
    ):
        raise InputError(
            "start is a keras.distribution.LayoutMap. Received: "
            f"start={shown(start)}; FoundLayout.layout_map makes one."
        )
    program, rows = prepared_step(model, batch)
    variables = DivisibleVariables(model)
    return search(variables, program, rows, axes, memory, links, start)


def search(
    variables: DivisibleVariables,
    program: Program,
    rows: int,
    axes: dict[str, int],
    memory: int | None = None,
    links: Sequence[float] | None = None,
    start: keras.distribution.LayoutMap | None = None,
) -> FoundLayout:
    """Finds a layout for a step that is traced; see `find_layout`."""
    if memory is not None:
        memory = checked_integer(memory, "memory", 1)
    large = {name: size for name, size in axes.items() if size > 1}
    slowness = _slowness(links, axes)
    inputs = DivisibleInputs(variables.model, program.trace)
    steps = ImaginedSteps(
        *(program, variables, large, next(iter(axes)), rows, slowness),
        inputs=inputs.numbers,
    )
    names, sizes = tuple(large), tuple(large.values())
    found = Search(sizes, steps.rows_axis, variables.groups(), steps.cost)
    weights = variables.whole(len(large))
    whole = weights + inputs.whole(len(large))
    starts = [whole]
    if start is not None:
        of_start = variables.laid_out(start, names)
        starts.append(of_start + inputs.laid_out(start, names))
    others = [weights + one for one in inputs.divided(sizes, steps.rows_axis)]
    with without_garbage_collection():
        layout = found.run(starts, memory, others) if large else whole
    cost = found.cost(layout)
    if memory is not None and cost.held > memory:
        raise InputError(
            f"No layout fits: a device would hold at least {cost.held:,} bytes of "
            f"variables and slots. Received: memory={memory:,} bytes, mesh "
            f"{axes}; use more devices or an optimizer with fewer slots"
        )
    return FoundLayout(
        dict(axes),
        variables.named(layout, names)
        | inputs.named(layout[len(weights) :], names, steps.rows_axis),
        cost.held,
        variables.num_bytes,
        steps.sent(layout),
        cost.flops,
        found.tried,
    )


def on_mesh(
    mesh: Sequence[int], layouts: Mapping[str, Any]
) -> keras.distribution.ModelParallel:
    """Returns a distribution on a mesh of the first devices.

    Args:
        layouts: Keys and values of a `keras.distribution.LayoutMap`.

    Raises:
        InputError: If there are too few devices, or a layout is invalid.
    """
    axes = named_axes(mesh)
    number, devices = math.prod(mesh), keras.distribution.list_devices()
    if len(devices) < number:
        raise InputError(
            f"A mesh of {'x'.join(map(str, mesh))} needs {number} devices. "
            f"Received: mesh={tuple(mesh)} and {len(devices)} devices "
            f"({', '.join(devices)}); use a smaller mesh, or virtual_devices to "
            "try it on logical CPU devices"
        )
    device_mesh = keras.distribution.DeviceMesh(
        tuple(axes.values()), tuple(axes), devices[:number]
    )
    made = keras.distribution.LayoutMap(device_mesh)
    for key, axes_of_key in layouts.items():
        if isinstance(axes_of_key, list):  # What JSON has in place of a tuple.
            axes_of_key = tuple(axes_of_key)
        try:
            made[key] = axes_of_key
        except ValueError as error:
            raise InputError(
                "layout maps keys to a tuple with an axis of the mesh, or None, "
                f"for each axis of a variable. Received: {key!r}: "
                f"{axes_of_key!r}; the axes are {', '.join(axes)}."
            ) from error
    return keras.distribution.ModelParallel(
        layout_map=made, batch_dim_name=next(iter(axes))
    )


def named_axes(mesh: MeshLike) -> dict[str, int]:
    """Returns the sizes of a mesh's axes by their names."""
    if isinstance(mesh, keras.distribution.DeviceMesh):
        return dict(zip(mesh.axis_names, map(int, mesh.shape)))
    sizes = checked_mesh(mesh)
    names = ["batch", "model", *(f"model_{n}" for n in range(2, len(sizes)))]
    return dict(zip(names, sizes))


def _slowness(
    links: Sequence[float] | None, axes: Mapping[str, int]
) -> dict[str, float]:
    """Returns, for each axis, what a byte counts against the fastest link's."""
    if links is None:
        return dict.fromkeys(axes, 1.0)
    if isinstance(links, str) or not isinstance(links, Sequence):
        links = [links]
    rates = [isinstance(rate, (int, float)) and rate > 0 for rate in links]
    if len(links) != len(axes) or not all(rates):
        raise InputError(
            "links has a rate above 0 for each mesh axis. Received: "
            f"links={links!r} for the axes {axes}"
        )
    return {name: max(links) / rate for name, rate in zip(axes, links)}
