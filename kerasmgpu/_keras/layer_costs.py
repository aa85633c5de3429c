"""Counts, for each layer, what a replica holds, computes and sends."""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from kerasmgpu._keras import training_state
from kerasmgpu.flops.counting import count
from kerasmgpu.flops.step_flops import layer_of, layers_in, value
from kerasmgpu.partitioner.rules.kinds import MeshAxes
from kerasmgpu.partitioner.runtime.costs import Costs
from kerasmgpu.partitioner.runtime.sharded_variable import (
    ShardedVariable,
)

if TYPE_CHECKING:
    from kerasmgpu.partitioner.runtime.written import Written

NO_LAYER = "outside of layers"
"""Name of the entry for counters, metrics and the loss."""


@dataclasses.dataclass
class LayerCost:
    """What a layer costs; its variables' bytes on the replica that holds most.

    Attributes:
        name: String, the path of the layer in its model: `"block/up"`.
        weights: Integer, bytes of its variables.
        slots: Integer, bytes of the optimizer's variables for them.
        on_host: Integer, bytes of those that are in host memory instead.
        whole: Integer, bytes of both on one device.
        flops: Float, floating-point operations of its products that a device
            computes in a step, on average, as `kerasmgpu flops` counts them;
            unknown ones count as 0.
        whole_flops: Float, those of one device alone.
        combined: Maps a collective, such as `"all_reduce"`, to the bytes of
            the whole tensors that it combines in a step.
        sent: Maps it to the bytes that each replica sends for that, in a ring.
        along: Maps `MeshAxes` to those that it sends along them.
    """

    name: str
    weights: int = 0
    slots: int = 0
    on_host: int = 0
    whole: int = 0
    flops: float = 0.0
    whole_flops: float = 0.0
    combined: Counter[str] = dataclasses.field(default_factory=Counter)
    sent: Counter[str] = dataclasses.field(default_factory=Counter)
    along: Counter[MeshAxes] = dataclasses.field(default_factory=Counter)


def layer_costs(
    model: keras.Model, written: "Written", rows: int
) -> list[LayerCost]:
    """Returns the cost of each layer that holds, computes or sends something.

    Args:
        written: `Written` of its training step.

    Returns:
        List of `LayerCost` in the order of the model, what is outside of
        layers last. Communication inside a loop counts once, and sizes that
        are known only when the step runs count as 1.
    """
    layers = dict(layers_in(model))
    by_layer: dict[int, LayerCost] = {}
    # A layer that is in several places has the first one's name.
    found = {
        path: by_layer.setdefault(
            id(layer), LayerCost(path.partition("/")[2] or path)
        )
        for path, layer in layers.items()
    }
    other, divided = LayerCost(NO_LAYER), set()
    costs = Costs(written.lowered, rows)
    optimizers = {one.name for one in training_state.optimizers(model)}
    for path, kind, variable in variables_by_layer(model, layers):
        cost = found.get(path, other)
        held = variable.value
        if isinstance(held, ShardedVariable):
            divided.add(path)
            if held.is_offloaded:
                kind = "on_host"
        setattr(cost, kind, getattr(cost, kind) + held_bytes(variable))
        cost.whole += whole_bytes(variable)
    counted = count(written.lowered.graph, costs.parts())
    for path, products in counted.by_layer(layers).items():
        cost = found.get(path, other)
        for product in products:
            flops = value(product.flops, rows) or 0
            cost.whole_flops += flops
            cost.flops += flops / product.parts
    for one in costs.sendings():
        path = _path_of(one.tensor.node, layers, divided, optimizers)
        cost = found.get(path, other)
        cost.combined[one.kind] += one.combined
        cost.sent[one.kind] += one.sent
        cost.along[one.axes] += one.sent
    every = [*by_layer.values(), other]
    return [
        one for one in every if one.whole or one.combined or one.whole_flops
    ]


def _path_of(
    node: Any,
    layers: Collection[str],
    divided: Collection[str],
    optimizers: set[str],
) -> str:
    """Returns the path of the layer whose value a node computes.

    A gradient may be summed behind operations of the optimizer, such as the
    product with the learning rate, or as a copy that waits for a check of
    `NotFinite`: then it is that of the nearest layer. Of
    gradients that an `AddN` adds, those are sent that divided weights make.
    """
    nodes = [node]
    for one in nodes:  # It grows.
        path = layer_of(one.name, layers)
        if path in layers:
            return path
        inputs = [tensor.node for tensor in one.inputs]
        if one.type == "AddN":
            inputs.sort(key=lambda i: layer_of(i.name, layers) not in divided)
        elif one.type != "Identity" and optimizers.isdisjoint(
            {path, re.sub(r"_\d+$", "", path)}
        ):
            continue
        nodes += [each for each in inputs if each not in nodes]
    return NO_LAYER


def variables_by_layer(
    model: keras.Model, layers: dict[str, Any]
) -> Iterator[tuple[str, str, Any]]:
    """Yields each variable with its layer's path and its part of `LayerCost`.

    Args:
        layers: Those of `layers_in`, by path.
    """
    owners: dict[int, tuple[str, Any]] = {}
    for path in sorted(layers, key=lambda path: path.count("/")):
        for variable in layers[path].variables:
            owners[id(variable)] = path, variable  # Inner layers come later.
    for path, variable in owners.values():
        yield path, "weights", variable
    weights = [variable for _, variable in owners.values()]
    slots = {
        id(slot): (slot, weight)
        for slot, weight in training_state.slots(model, weights)
        if id(slot) not in owners
    }
    for slot, weight in slots.values():
        path = NO_LAYER if weight is None else owners[id(weight)][0]
        yield path, "slots", slot
    for variable in model.metrics_variables:
        if id(variable) not in owners:
            yield NO_LAYER, "weights", variable


def held_bytes(variable: Any) -> int:
    """Returns a variable's bytes on the replica that holds most of it."""
    # Any other attribute of a variable that is a sum reads it: a collective.
    held = variable.value
    if isinstance(held, ShardedVariable):
        return held.most_bytes
    return whole_bytes(variable)


def whole_bytes(variable: Any) -> int:
    """Returns the bytes of a variable of Keras on one device."""
    return math.prod(variable.shape) * tf.as_dtype(variable.dtype).size
