"""Reads and restores the variables of layers, optimizers and metrics."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu._keras import made_variables
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable


class Piece(NamedTuple):
    """A variable's value, or a part of it, in host memory.

    Attributes:
        variable: Integer, index of the variable.
        start: List of integers, the first element along each axis.
        array: NumPy array, or the part itself, a `tf.Variable`.
    """

    variable: int
    start: list[int]
    array: Any


def read(
    model: keras.Model,
    with_metrics: bool,
    all_workers: bool,
    keeps: bool = True,
    sharded: bool = False,
    copies: bool = True,
) -> tuple[dict[str, Any], list[Piece]]:
    """Copies a model's variables to host memory.

    Under several workers this is a collective.

    Args:
        model: Compiled `keras.Model`, built.
        with_metrics: Boolean, whether to include the state of metrics.
        all_workers: Boolean, whether there are several workers. Partial sums
            of replicas are then summed over all workers.
        keeps: Boolean, whether this worker needs the values. Others read each
            variable, too, since reading a sharded one is a collective of all
            workers.
        sharded: Boolean, whether to return only the parts of sharded variables
            that this worker saves; each part is saved by one worker. Otherwise
            whole values are read.
        copies: Boolean, whether parts are copied. Otherwise the array of a
            part's `Piece` is the part itself, a `tf.Variable`.

    Returns:
        `(saved, pieces)`. `saved` is a dictionary of plain data:
        `"variables"` describes each variable, `"optimizers"` lists the indices
        of each optimizer's variables. `pieces` has a `Piece` per variable, or
        with `sharded` those that this worker saves.
    """
    descriptions, pieces = [], []
    with model.distribute_strategy.scope():
        listed, built = variables(model, with_metrics)
        for index, (kind, variable) in enumerate(listed):
            value = variable.value
            parts = None if all_workers else _parts(variable)
            descriptions.append(
                {
                    "kind": kind,
                    "path": variable.path,
                    "shape": list(variable.shape),
                    "dtype": keras.backend.standardize_dtype(variable.dtype),
                    "parts": None if parts is None else _combination(value),
                }
            )
            if sharded and isinstance(value, ShardedVariable):
                for part, box in value.parts_to_save():
                    start = [one.start for one in box]
                    array = _on_host(part) if copies else part
                    pieces.append(Piece(index, start, array))
                continue
            if parts is None:
                array = _on_host(value)
            else:
                array = np.stack([_on_host(part) for part in parts])
            if keeps:
                pieces.append(Piece(index, [0] * array.ndim, array))
            del array
    return {"variables": descriptions, "optimizers": built}, pieces


def variables(
    model: keras.Model, with_metrics: bool = False
) -> tuple[list[tuple[str, Any]], list[list[int | None] | None]]:
    """Returns pairs of a kind and a variable, and the optimizers' weights."""
    listed = [("layer", v) for v in model.variables]
    built = []
    for optimizer in optimizers(model):
        built.append(_indices_of_weights(model, optimizer))
        listed += [("optimizer", v) for v in optimizer.variables]
    if with_metrics:
        listed += [("metric", v) for v in model.metrics_variables]
    return listed, built


def slots(
    model: keras.Model, weights: Iterable[Any]
) -> Iterator[tuple[Any, Any]]:
    """Yields each variable of the optimizers with its weight, or `None`.

    Args:
        weights: Variables of the model.
    """
    known = {id(one): one for one in weights}
    for optimizer in optimizers(model):
        for slot in optimizer.variables:
            yield slot, known.get(id(made_variables.weight_of(slot)))


def slot_names(model: keras.Model) -> Iterator[tuple[Any, str]]:
    """Yields each variable of the optimizers with its name.

    Without the name of its weight: `"momentum"`, for example.
    """
    for slot, weight in slots(model, model.variables):
        of = "" if weight is None else weight.path.replace("/", "_")
        yield slot, slot.path.split("/")[-1].removeprefix(f"{of}_")


def restore(
    model: keras.Model,
    saved: dict[str, Any],
    array: Callable[[int], Any],
    first_worker: bool,
) -> None:
    """Assigns the values that `read` returned, metrics included if present.

    Args:
        model: The same model, compiled the same way, in any strategy.
        saved: First return value of `read`.
        array: Function from a variable's index to its array, of NumPy or one
            that is read when it is sliced; called once for each variable, in
            the same order on all workers.
        first_worker: Boolean, whether this is the first worker, which gets
            the values of partial sums; the others' are set to 0.

    Raises:
        InputError: If the model differs; names the first difference.
    """
    with model.distribute_strategy.scope():
        _build_optimizers(model, saved["optimizers"])
        listed, _ = variables(model, with_metrics=True)
        plan = []
        for kind in ("layer", "optimizer", "metric"):
            own = [variable for other, variable in listed if other == kind]
            ours = [
                (description, index)
                for index, description in enumerate(saved["variables"])
                if description["kind"] == kind
            ]
            if kind != "metric" or ours:
                _require_same(kind, [d for d, _ in ours], own)
            plan += [(v, *pair) for v, pair in zip(own, ours)]
        for variable, description, index in plan:
            _assign(variable, array(index), description["parts"], first_worker)


def optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Returns all optimizers that are attributes of a model or its layers.

    Models with several (a GAN's) keep them in attributes, lists or
    dictionaries.
    """
    found = {}
    for layer in model._flatten_layers():
        for value in list(vars(layer).values()):
            for leaf in _leaves(value):
                if isinstance(leaf, keras.optimizers.Optimizer):
                    found[id(leaf)] = leaf
    return list(found.values())


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _indices_of_weights(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> list[int | None] | None:
    """Returns indices of the variables that an optimizer updates.

    `None` if it isn't built: an optimizer that only a custom `train_step` uses
    is built in the first step, too late for a restore.
    """
    if not optimizer.built:
        return None
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    places = {id(v): index for index, v in enumerate(model.variables)}
    weights = getattr(inner, "_trainable_variables", ())
    return [places.get(id(v)) for v in weights]


def _build_optimizers(
    model: keras.Model, weights: list[list[int | None] | None]
) -> None:
    ours = optimizers(model)
    if len(ours) != len(weights):
        raise InputError(
            f"The checkpoint is of another model: it has {len(weights)} "
            f"optimizers, {model.name!r} has {len(ours)}. Choose another "
            "directory for this model"
        )
    for optimizer, indices in zip(ours, weights):
        if optimizer.built or indices is None:
            continue
        known = [index for index in indices if index is not None]
        if len(known) == len(indices) and (
            max(known, default=0) < len(model.variables)
        ):
            optimizer.build([model.variables[index] for index in known])


def _require_same(
    kind: str, saved: list[dict[str, Any]], variables: list[Any]
) -> None:
    for index, (description, variable) in enumerate(zip(saved, variables)):
        shape = list(variable.shape)
        dtype = keras.backend.standardize_dtype(variable.dtype)
        ours = (_plain_path(kind, variable.path), shape, dtype)
        theirs = (
            _plain_path(kind, description["path"]),
            description["shape"],
            description["dtype"],
        )
        if ours != theirs:
            raise InputError(
                "The checkpoint is of another model: its "
                f"{kind} variable {index} is {description['path']} "
                f"{description['shape']} {description['dtype']}, this "
                f"model's is {variable.path} {shape} {dtype}. Choose another "
                "directory for this model"
            )
    if len(saved) != len(variables):
        paths = [description["path"] for description in saved]
        own_paths = [variable.path for variable in variables]
        first = (paths[len(own_paths) :] or own_paths[len(paths) :])[0]
        # Weights are compared first: they are the same.
        is_of_optimizer = kind == "optimizer"
        what = (
            "compiled with another optimizer"
            if is_of_optimizer
            else "of another model"
        )
        instead = ", or compile with that optimizer" if is_of_optimizer else ""
        raise InputError(
            f"The checkpoint is {what}: it has {len(saved)} {kind} "
            f"variables, this model has {len(variables)}; the first one that "
            f"only one of them has is {first}. Choose another directory for "
            f"this model{instead}"
        )


def _plain_path(kind: str, path: Any) -> str:
    """Returns the part of a path that is equal in all runs of a program.

    Keras adds numbers to names that were used before. Paths of an optimizer's
    variables begin with the name scope in which the optimizer was built, which
    differs if a step built it.
    """
    if kind == "optimizer":
        path = path.rpartition("/")[-1]
    return re.sub(r"_\d+(?=[_/]|$)", "", path)


def _parts(variable: Any) -> Sequence[Any] | None:
    """Returns the replicas' values of an `ON_READ` variable, else `None`."""
    state = variable.value
    if not isinstance(state, tf.distribute.DistributedValues):
        return None
    if state.synchronization != tf.VariableSynchronization.ON_READ:
        return None
    return state.values


def _combination(state: Any) -> str:
    """Returns how parts combine: `"sum"`, or `"same"` on all replicas."""
    return "sum" if state.aggregation == tf.VariableAggregation.SUM else "same"


def _assign(
    variable: Any, array: Any, combination: str | None, first_worker: bool
) -> None:
    """Assigns a variable's value, or its replicas' parts."""
    if isinstance(variable.value, ShardedVariable):
        variable.value.assign_from(array)
        return
    parts, array = _parts(variable), array[...]
    if combination is not None and parts is not None and first_worker:
        if len(parts) == len(array):
            for part, own in zip(parts, array):
                part.assign(own)
            return
    if combination is not None:
        array = array.sum(axis=0) if combination == "sum" else array[0]
    if parts is None:
        variable.assign(array)
        return
    # Another number of replicas: the first replica gets the whole sum.
    to_all = "same" in (combination, _combination(variable.value))
    for index, part in enumerate(parts):
        gets = to_all or (first_worker and index == 0)
        part.assign(array if gets else np.zeros_like(array))


def _on_host(variable: Any) -> np.ndarray:
    """Returns a NumPy copy that no later step writes to."""
    tensor = tf.convert_to_tensor(variable)
    array = tensor.numpy()
    # The array of a CPU tensor shares the tensor's memory.
    return array.copy() if "CPU" in tensor.device else array
