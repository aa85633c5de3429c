"""Adds the model's variables to a traced step."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras import initializers
from kerasmgpu._keras.distribution_backend import sharding_of
from kerasmgpu.commands import traced_step
from kerasmgpu.memory.state_bytes import VariableRecord


@dataclasses.dataclass(frozen=True)
class TracedStep(traced_step.TracedStep):
    """A model's training step, and its variables.

    Attributes:
        variables: `VariableRecord` of each variable: the model's, in the order
            of layers, then those of optimizer and metrics.
        record_of: Maps ids of TensorFlow's variables to their records.
        model: The model, which keeps its variables, and so their ids, alive.
    """

    variables: list[VariableRecord]
    record_of: dict[int, VariableRecord]
    model: keras.Model

    @property
    def offloading(self) -> "TracedStep":
        """The step with slots in host memory where they are divided."""
        record_of = {
            key: dataclasses.replace(one, offloads=one.kind == "slot")
            for key, one in self.record_of.items()
        }
        return dataclasses.replace(
            self, record_of=record_of, variables=list(record_of.values())
        )


def trace_step(
    model: keras.Model, data: Any, global_batch_size: int | None
) -> TracedStep:
    """Traces a step; see `commands.traced_step.trace_step`."""
    return with_variables(
        model, traced_step.trace_step(model, data, global_batch_size)
    )


def with_variables(
    model: keras.Model, step: traced_step.TracedStep
) -> TracedStep:
    """Returns a traced step with the variables of its model."""
    record_of = dict(_records(model))
    return TracedStep(
        **vars(step),
        variables=list(record_of.values()),
        record_of=record_of,
        model=model,
    )


def _records(
    model: keras.Model,
) -> Iterator[tuple[int, VariableRecord]]:
    """Yields the id of each TensorFlow variable of a model, and its record."""
    tables = {
        id(variable): variable.path.replace("/", "_")
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Embedding)
        for variable in layer.variables
    }
    weights = {id(weight): weight for weight in model.weights}
    layouts = {
        (id(weight._layout), weight.shape): weight._layout
        for weight in model.weights
        if getattr(weight, "_layout", None) is not None
    }
    optimizer = model.optimizer.variables if model.optimizer else []
    slots = set(map(id, optimizer))
    named = tuple(tables.values())
    seen = set()
    for variable in (*model.variables, *optimizer, *model.metrics_variables):
        if id(variable) in seen:
            continue
        seen.add(id(variable))
        kind, is_embedding = "other", id(variable) in tables
        if id(variable) in weights:
            kind = "weight"
        elif id(variable) in slots and variable.shape:
            kind = "slot"
            _, _, name = variable.path.rpartition("/")
            is_embedding = bool(named) and name.startswith(named)
        key = id(getattr(variable, "_layout", None)), variable.shape
        layout = None
        # As `Layouts` does: of the others, only slots have a weight's layout.
        if kind != "other" and tf.as_dtype(variable.dtype).is_floating:
            layout = layouts.get(key)
        yield (
            id(variable.value),
            VariableRecord(
                variable.path,
                tuple(variable.shape),
                tf.as_dtype(variable.dtype).size,
                kind,
                is_embedding,
                () if layout is None else sharding_of(layout).spec,
                initializers.kind_of(variable),
            ),
        )
