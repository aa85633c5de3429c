"""The training step of the user's model, traced as `fit` traces it."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu._keras.steps import Steps
from kerasmgpu.commands import batches
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.errors import InputError
from kerasmgpu.memory.state_bytes import VariableRecord
from kerasmgpu.partitioner.program import Program

DEFAULT_ROWS = 32
"""Rows of a batch of arrays, as in `fit`."""


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A model's training step.

    Attributes:
        program: `partitioner.program.Program`.
        variables: `VariableRecord` of each variable, in the order of layers.
        record_of: Maps ids of TensorFlow's variables to their records.
        shapes: For each tensor of a batch its shape.
        rows: Integer, rows of a global batch.
        jit_compile: Whether XLA compiles it.
    """

    program: Program
    variables: list[VariableRecord]
    record_of: dict[int, VariableRecord]
    shapes: list[tuple[int | None, ...]]
    rows: int
    jit_compile: bool


def trace_step(
    model: keras.Model, data: Any, global_batch_size: int | None
) -> TracedStep:
    """Traces the training step of a model; runs nothing.

    Args:
        model: Compiled `keras.Model` that was built in our strategy's scope.
        data: Arrays or batches, as for `kerasmgpu.verify`.
        global_batch_size: Integer, rows of a batch. Default: those of the
            first batch of `data`, or 32 of arrays.

    Raises:
        InputError: If the data are empty, or the step runs eagerly.
    """
    if model.run_eagerly:
        raise InputError(
            "the model was compiled with run_eagerly=True, and eager steps are "
            "not traced; compile it with run_eagerly=False"
        )
    (batch,) = batches.first_batches(data, 1).take(1) or (None,)
    rows = global_batch_size or _rows(batch, data)
    specification = tf.nest.map_structure(_of_any_rows, batch)
    dataset = tf.data.Dataset.from_generator(
        _nothing, output_signature=specification
    )
    feed = Feed(dataset, batch_size=rows)
    steps = Steps(model, model.train_step)
    steps.prepare(feed)
    (program,) = steps.programs
    shapes = [
        (rows, *leaf.shape[1:]) if leaf.shape.rank else ()
        for leaf in tf.nest.flatten(batch, expand_composites=True)
    ]
    record_of = dict(_records(model))
    return TracedStep(
        program,
        list(record_of.values()),
        record_of,
        shapes,
        rows,
        bool(model.jit_compile),
    )


def _nothing() -> Iterator[Any]:
    return iter(())


def _rows(batch: Any, data: Any) -> int:
    if isinstance(data, (tuple, dict)) or hasattr(data, "__array__"):
        return DEFAULT_ROWS
    return batches.num_rows(batch)


def _of_any_rows(leaf: Any) -> tf.TypeSpec:
    specification = tf.type_spec_from_value(leaf)
    if isinstance(specification, tf.TensorSpec) and leaf.shape.rank:
        return tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)
    if isinstance(specification, tf.SparseTensorSpec):
        return tf.SparseTensorSpec([None, *leaf.shape[1:]], leaf.dtype)
    if isinstance(specification, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(
            [None, *leaf.shape[1:]], leaf.dtype, leaf.ragged_rank
        )
    return specification


def _records(
    model: keras.Model,
) -> Iterator[tuple[int, VariableRecord]]:
    """The record of each variable, by the id of TensorFlow's variable."""
    tables = {
        id(variable): variable.path.replace("/", "_")
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Embedding)
        for variable in layer.variables
    }
    weights = set(map(id, model.weights))
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
        yield (
            id(variable.value),
            VariableRecord(
                variable.path,
                tuple(variable.shape),
                tf.as_dtype(variable.dtype).size,
                kind,
                is_embedding,
            ),
        )
