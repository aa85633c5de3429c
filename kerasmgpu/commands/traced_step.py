"""The training step of the user's model, traced as `fit` traces it."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras import made_variables
from kerasmgpu._keras.divided_inputs import named_inputs
from kerasmgpu._keras.steps import Steps
from kerasmgpu.commands import batches, user_models
from kerasmgpu.engine.devices import leave_room
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.program import Program
from kerasmgpu.strategies import MirroredStrategy, found_layout
from kerasmgpu.strategies.divisible_variables import DivisibleVariables
from kerasmgpu.strategies.layouts import Distribution
from kerasmgpu.strategies.noted_distributions import noted

DEFAULT_ROWS = 32
"""Rows of a batch of arrays, as in `fit`."""


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A model's training step.

    Attributes:
        program: `partitioner.runtime.program.Program`.
        shapes: For each tensor of a batch its shape.
        rows: Integer, rows of a global batch.
        stays_whole: Whether its batches are passed whole, since some tensors
            are sparse or ragged.
        jit_compile: Whether XLA compiles it.
        distribution: The `keras.distribution.Distribution` that the user's
            program sets, or that was found for its mesh, which the step doesn't
            follow; `None` without one.
        layouts: What was found, as `FoundLayout.layouts`; `None` if nothing was
            to be found.
    """

    program: Program
    shapes: list[tuple[int | None, ...]]
    rows: int
    stays_whole: bool
    jit_compile: bool
    distribution: Distribution | None
    layouts: dict[str, tuple[str | None, ...]] | None


def trace_step(
    model: keras.Model, data: Any, global_batch_size: int | None
) -> TracedStep:
    """Traces the training step of a model; runs nothing.

    Args:
        model: Compiled `keras.Model` that was built in our strategy's scope.
        data: Arrays or batches, as for `kerasmgpu.verify`.
        global_batch_size: Integer, rows of a batch. Default: those of the
            first batch of `data`, or of arrays 32, or as many as the model's
            inputs are made for.

    Raises:
        InputError: If the data are empty, the step runs eagerly, or the model's
            inputs are made for other batches.
    """
    if model.run_eagerly:
        raise InputError(
            "the model was compiled with run_eagerly=True, and eager steps are "
            "not traced; compile it with run_eagerly=False"
        )
    (batch,) = batches.first_batches(data, 1).take(1) or (None,)
    fixed = _fixed_rows(model)
    rows = global_batch_size or _rows(batch, data, fixed)
    if fixed is not None and rows != fixed:
        raise InputError(
            f"the model's inputs are made for batches of {fixed} rows. Received: "
            f"batches of {rows}; call it with --global_batch_size={fixed}, and "
            "with data of such batches"
        )
    specification = tf.nest.map_structure(_of_any_rows, batch)
    dataset = tf.data.Dataset.from_generator(
        _nothing, output_signature=specification
    )
    feed = Feed(dataset, batch_size=rows)
    steps = Steps(model, model.train_step)
    steps.prepare(feed)
    (program,) = steps.programs
    leaves = tf.nest.flatten(batch)
    shapes = [shape for leaf in leaves for shape in _shapes(leaf, rows)]
    stays_whole = any(
        isinstance(leaf, (tf.RaggedTensor, tf.SparseTensor)) for leaf in leaves
    )
    return TracedStep(
        program, shapes, rows, stays_whole, bool(model.jit_compile), None, None
    )


def trace_job(job: dict[str, Any]) -> tuple[keras.Model, TracedStep]:
    """Builds the model of a command's job, and traces its step for 2 replicas.

    A `keras.distribution` that the program sets is only noted. A layout that is
    to be found (`layout="auto"`) is found.

    Args:
        job: Dictionary: `"build"` and `"data"`, names of functions (the latter
            may be `None`); `"global_batch_size"` or `None`; `"devices"` and
            `"device_type"`, number and kind of the devices that
            `keras.distribution.list_devices` lists; `"flag"`, the flag with
            their number. It may have a `"mesh"`, sizes of the axes for which a
            layout is to be found.

    Raises:
        InputError: See `trace_step`; if the program fails with these devices, or
            has a mesh of its own beside `"mesh"`.
    """
    leave_room()
    mesh = job.get("mesh")
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    with noted(job["devices"], job["device_type"], strategy) as note:
        if mesh is not None:
            kerasmgpu.strategy(mesh=mesh, layout="auto")
        asked = note.distribution
        with strategy.scope():
            model, data = user_models.loaded(
                job["build"], job["data"], note.listed, job["flag"]
            )
            if asked is not None and note.distribution is not asked:
                raise InputError(
                    "The program has a mesh of its own: leave out mesh. Received: "
                    f"mesh={mesh} and {note.distribution}"
                )
            step = trace_step(model, data, job["global_batch_size"])
        own = note.distribution
        if own is not None and note.finds is not None:
            return model, _found(model, data, step, own, note.finds)
    return model, dataclasses.replace(step, distribution=own)


def _found(
    model: keras.Model,
    data: Any,
    step: TracedStep,
    of_mesh: Distribution,
    arguments: dict[str, Any],
) -> TracedStep:
    """Returns a step with the layout that is found for a distribution's mesh."""
    variables = DivisibleVariables(model)
    mesh = of_mesh.device_mesh
    found = found_layout.search(
        variables,
        step.program,
        step.rows,
        found_layout.named_axes(mesh),
        **arguments,
    )
    layouts = found.layout_map(mesh)
    for one in variables.variables:
        layout = layouts[one.path]
        if layout is not None:
            made_variables.set_layout(one, layout)
    distribution = keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name=of_mesh.batch_dim_name
    )
    if any(key in found.layouts for key, _ in named_inputs(model)):
        keras.distribution.set_distribution(distribution)
        with model.distribute_strategy.scope():
            step = trace_step(model, data, step.rows)
    return dataclasses.replace(
        step, distribution=distribution, layouts=found.layouts
    )


def num_parameters(model: keras.Model) -> int:
    """Elements of a model's weights; those of its parts if it is not built."""
    return sum(math.prod(variable.shape) for variable in model.weights)


def _nothing() -> Iterator[Any]:
    return iter(())


def _shapes(leaf: Any, rows: int) -> Iterator[tuple[int | None, ...]]:
    """Yields the shape of each tensor of a leaf, for a batch of some rows."""
    if isinstance(leaf, tf.RaggedTensor):
        # Values, and where each row, or row of a row, begins.
        yield None, *leaf.flat_values.shape[1:]
        for outer in range(leaf.ragged_rank):
            yield (None if outer else rows + 1,)
        return
    for one in tf.nest.flatten(leaf, expand_composites=True):
        yield (rows, *one.shape[1:]) if one.shape.rank else ()


def _fixed_rows(model: keras.Model) -> int | None:
    """Returns the rows that a model's inputs are made for; `None` if any."""
    inputs = tf.nest.flatten(getattr(model, "inputs", None) or [])
    fixed = {one.shape[0] for one in inputs if len(one.shape)} - {None}
    return fixed.pop() if len(fixed) == 1 else None


def _rows(batch: Any, data: Any, fixed: int | None) -> int:
    if isinstance(data, (tuple, dict)) or hasattr(data, "__array__"):
        return fixed or DEFAULT_ROWS
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
