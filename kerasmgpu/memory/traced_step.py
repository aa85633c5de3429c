"""Adds the model's variables to a traced step."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import keras

from kerasmgpu._keras import initializers, made_variables, training_state
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
    weights = set(map(id, model.weights))
    optimizers = training_state.optimizers(model)
    slots = {id(one): one for each in optimizers for one in each.variables}
    records: dict[int, VariableRecord] = {}
    for variable in (
        *model.variables,
        *slots.values(),
        *model.metrics_variables,
    ):
        if id(variable) in records:
            continue
        held_as = (
            "slot" if id(variable) in slots and variable.shape else "other"
        )
        records[id(variable)] = record = VariableRecord(
            **vars(made_variables.described(variable)),
            initial=initializers.kind_of(variable),
            held_as="weight" if id(variable) in weights else held_as,
            weight=records.get(id(made_variables.weight_of(variable))),
        )
        yield id(variable.value), record
