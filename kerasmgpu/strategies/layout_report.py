"""Reports what a model's layout makes each device hold and send."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras

from kerasmgpu._keras import iterators, targets
from kerasmgpu._keras.layer_costs import LayerCost, layer_costs
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import (
    InputError,
    checked_arguments,
    shown,
)
from kerasmgpu.partitioner.runtime.costs import Costs
from kerasmgpu.partitioner.runtime.program import Program


@dataclasses.dataclass(frozen=True)
class LayoutReport:
    """What each device holds, computes and sends in a training step, by layer.

    `print(report)` shows a table.

    Attributes:
        model: String, the model's name.
        num_replicas: Integer, replicas of all workers.
        rows: Integer, rows of the batch over all replicas.
        layers: List of `LayerCost`: name, bytes of `weights` and `slots` on the
            device that holds most, bytes of both when they are `whole`, `flops`
            of a device and `whole_flops` of one alone, and bytes `sent` by each
            replica, by collective.
        along: Dictionary from the name of a mesh axis to the bytes that each
            replica sends along it; empty for one axis. With `shard_over` the
            names are `"all replicas"`, `"a group"` and `"the groups"`.
        linked: Pair of integers, bytes that each replica copies to the host in
            a step, and back, with `offload`.
    """

    model: str
    num_replicas: int
    rows: int
    layers: list[LayerCost]
    along: dict[str, int] = dataclasses.field(default_factory=dict)
    linked: tuple[int, int] = (0, 0)

    @property
    def on_host(self) -> int:
        """Bytes of the slots that each replica has in host memory."""
        return sum(one.on_host for one in self.layers)

    @property
    def held(self) -> int:
        """Bytes of all variables on the device that holds most."""
        return sum(one.weights + one.slots for one in self.layers)

    @property
    def whole(self) -> int:
        """Bytes of all variables on one device."""
        return sum(one.whole for one in self.layers)

    @property
    def computes(self) -> float:
        """A device's part of the operations of the products, on average.

        It is 1 / n where n devices divide all of them; 1 where there are none.
        """
        return 1.0 if (part := _computed(self.layers)) is None else part

    @property
    def sent(self) -> int:
        """Bytes that each replica sends in a step."""
        return sum(one.sent.total() for one in self.layers)

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [
            (
                *("layer", "weights", "slots", "on one device"),
                *("computes", "sent", "by"),
            )
        ]
        for one in self.layers:
            kinds = [kind.replace("_", "-") for kind in one.sent]
            held = _numbers([one.weights, one.slots, one.whole])
            sent = f"{one.sent.total():,}"
            by = ", ".join(kinds)
            lines.append((one.name, *held, _percent([one]), sent, by))
        weights = sum(one.weights for one in self.layers)
        slots = sum(one.slots for one in self.layers)
        held = _numbers([weights, slots, self.whole])
        sent = f"{self.sent:,}"
        lines.append(("all", *held, _percent(self.layers), sent, ""))
        widths = [max(map(len, column)) for column in zip(*lines)]
        table = [
            "  ".join(
                [
                    name.ljust(widths[0]),
                    *(n.rjust(w) for n, w in zip(numbers, widths[1:])),
                    by,
                ]
            ).rstrip()
            for name, *numbers, by in lines
        ]
        head = (
            f"{self.model}: bytes that each of {self.num_replicas} devices holds, "
            f"its part of the products in a step of {self.rows} rows, and bytes "
            "that it sends"
        )
        if self.along:
            parts = (f"{n:,} along {axis}" for axis, n in self.along.items())
            table.append(f"sent: {', '.join(parts)}")
        if self.on_host:
            table.append(
                f"on the host: {self.on_host:,} of slots; copied in a step: "
                "{:,} there, {:,} back".format(*self.linked)
            )
        return "\n".join([head, *table])


@checked_arguments
def layout_report(model: keras.Model, batch: Any) -> LayoutReport:
    """Counts what a layout makes each device hold and send, before training.

    The step is traced and partitioned as `fit` does it, and not run; a `fit` of
    batches like this one then uses it. The figures are those of the program
    that runs, for rings along the axes of the mesh; communication inside a
    loop counts once. In a job all workers must call it.

    Args:
        model: Compiled `keras.Model` that was built under a strategy of
            kerasmgpu, or of `keras.distribution`.
        batch: A global batch, as for `model.train_on_batch`: arrays `x`,
            `(x, y)` or `(x, y, sample_weight)`.

    Returns:
        A `LayoutReport`.

    Raises:
        InputError: If the model was built elsewhere, isn't compiled, or runs
            eagerly.

    Example:

    ```python
    report = kerasmgpu.layout_report(model, (x[:256], y[:256]))
    print(report)
    ```
    """
    checked_model(model, "layout_report")
    program, rows = prepared_step(model, batch)
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync
    written = program.written()
    costs = layer_costs(model, written, rows)
    along = {
        name: sum(one.along[axes] for one in costs)
        for axes, name in strategy.axis_names.items()
    }
    linked = Costs(written.lowered).linked()
    return LayoutReport(model.name, replicas, rows, costs, along, linked)


def checked_model(model: keras.Model, name: str) -> None:
    """Raises an `InputError` of `name()` if a step can't be planned."""
    if not isinstance(model, keras.Model):
        raise InputError(
            f"{name} is for a compiled keras.Model. Received: {shown(model)}"
        )
    if not is_ours(model.distribute_strategy):
        raise InputError(
            f"{name} is for a model that was built under a strategy of "
            "kerasmgpu or after keras.distribution.set_distribution. Received: "
            f"model {model.name!r}, which was not"
        )
    if not model.compiled or model.run_eagerly:
        raise InputError(
            f"{name} counts the compiled training step. Received: model "
            f"{model.name!r}, which is not compiled or has run_eagerly=True; "
            "call model.compile() without it first"
        )


def prepared_step(model: keras.Model, batch: Any) -> tuple[Program, int]:
    """Traces a model's training step; returns its program, and the rows.

    Raises:
        InputError: If they are none.
    """
    given = keras.utils.unpack_x_y_sample_weight(batch)
    leaves = keras.tree.flatten(given[0])
    if not leaves or not all(getattr(leaf, "shape", None) for leaf in leaves):
        raise InputError(
            "A batch is an array, or a tuple of arrays x, y and sample_weight. "
            f"Received: {shown(batch)}"
        )
    targets.require(model, given[1], "a batch")
    rows = leaves[0].shape[0]
    feed = iterators.feed_of(model, given, rows)
    model.make_train_function()
    return model.train_function.prepare(feed), rows


def _numbers(numbers: Iterable[int]) -> list[str]:
    return [f"{number:,}" for number in numbers]


def _percent(layers: Iterable[LayerCost]) -> str:
    part = _computed(layers)
    return "" if part is None else f"{part:.1%}"


def _computed(layers: Iterable[LayerCost]) -> float | None:
    """Returns a device's part of the products of layers; `None` without any."""
    own, whole = map(
        sum, zip(*((one.flops, one.whole_flops) for one in layers))
    )
    return own / whole if whole else None
