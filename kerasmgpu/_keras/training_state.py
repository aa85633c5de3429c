"""All variables that training changes: of layers, optimizers and metrics."""

import re

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError


def read(model, with_metrics, all_workers):
    """Copies of a model's variables in the memory of the host.

    Under several workers this is a collective.

    Args:
        model: Compiled `keras.Model`, built.
        with_metrics: Boolean, whether the states of metrics too.
        all_workers: Boolean, whether there are several workers. Sums that
            replicas hold a part of are then taken over all of them.

    Returns:
        `(descriptions, arrays)`: a list of plain dictionaries, and an array
        for each.
    """
    with model.distribute_strategy.scope():
        variables = [("layer", v) for v in model.variables]
        built = []
        for optimizer in optimizers(model):
            built.append(_indices_of_weights(model, optimizer))
            variables += [("optimizer", v) for v in optimizer.variables]
        if with_metrics:
            variables += [("metric", v) for v in model.metrics_variables]
        pairs = [_read(kind, v, all_workers) for kind, v in variables]
    descriptions = [description for description, _ in pairs]
    arrays = [array for _, array in pairs]
    return {"variables": descriptions, "optimizers": built}, arrays


def _read(kind, variable, all_workers):
    """Description and value of one variable."""
    parts = None if all_workers else _parts(variable)
    if parts is None:
        array = _on_host(variable.value)
    else:
        array = np.stack([_on_host(part) for part in parts])
    return {
        "kind": kind,
        "path": variable.path,
        "shape": list(variable.shape),
        "dtype": keras.backend.standardize_dtype(variable.dtype),
        "parts": None if parts is None else _combination(variable.value),
    }, array


def restore(model, saved, arrays, first_worker):
    """Assigns what `read` returned; metrics too, if they are in it.

    Args:
        model: The same model, compiled the same way, in any strategy.
        saved: What `read` returned first.
        arrays: What `read` returned second.
        first_worker: Boolean, whether this worker takes the sums over all
            replicas where each holds a part; others then start from 0.

    Raises:
        InputError: If the model is another one; names the first difference.
    """
    with model.distribute_strategy.scope():
        _build_optimizers(model, saved["optimizers"])
        kinds = {
            "layer": model.variables,
            "optimizer": [
                v for each in optimizers(model) for v in each.variables
            ],
            "metric": model.metrics_variables,
        }
        plan = []
        for kind, variables in kinds.items():
            ours = [
                (description, array)
                for description, array in zip(saved["variables"], arrays)
                if description["kind"] == kind
            ]
            if kind != "metric" or ours:
                _require_same(kind, [d for d, _ in ours], variables)
            plan += [(v, *pair) for v, pair in zip(variables, ours)]
        for variable, description, array in plan:
            _assign(variable, array, description["parts"], first_worker)


def optimizers(model):
    """Every optimizer that is an attribute of a model or of a part of it.

    Models with several (a GAN's) keep them as attributes, in lists or in
    dictionaries.
    """
    found = {}
    for layer in model._flatten_layers():
        for value in list(vars(layer).values()):
            for leaf in _leaves(value):
                if isinstance(leaf, keras.optimizers.Optimizer):
                    found[id(leaf)] = leaf
    return list(found.values())


def _leaves(value):
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _indices_of_weights(model, optimizer):
    """Which of the model's variables an optimizer updates; `None`: not built.

    An optimizer that only the model's own `train_step` uses is built in its
    first step, which is too late for a restored one.
    """
    if not optimizer.built:
        return None
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    places = {id(v): index for index, v in enumerate(model.variables)}
    weights = getattr(inner, "_trainable_variables", ())
    return [places.get(id(v)) for v in weights]


def _build_optimizers(model, weights):
    ours = optimizers(model)
    if len(ours) != len(weights):
        raise InputError(
            f"The checkpoint is one of another model: it has {len(weights)} "
            f"optimizers, and {model.name!r} has {len(ours)}"
        )
    for optimizer, indices in zip(ours, weights):
        if optimizer.built or indices is None or None in indices:
            continue
        if max(indices, default=0) < len(model.variables):
            optimizer.build([model.variables[index] for index in indices])


def _require_same(kind, saved, variables):
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
                "The checkpoint is one of another model: its "
                f"{kind} variable {index} is {description['path']} "
                f"{description['shape']} {description['dtype']}, this "
                f"model's is {variable.path} {shape} {dtype}. Choose another "
                "directory for this model"
            )
    if len(saved) != len(variables):
        longer = saved[len(variables) :] or variables[len(saved) :]
        first = longer[0]["path"] if saved[len(variables) :] else longer[0].path
        raise InputError(
            f"The checkpoint is one of another model: it has {len(saved)} "
            f"{kind} variables, and this model has {len(variables)}; the "
            f"first that the other lacks is {first}. Choose another directory "
            "for this model"
        )


def _plain_path(kind, path):
    """What stays of a path when the same program is run another time.

    Keras numbers names that were used before. An optimizer's variables are
    named in the scope in which it is built, by a step or before.
    """
    if kind == "optimizer":
        path = path.rpartition("/")[-1]
    return re.sub(r"_\d+(?=[_/]|$)", "", path)


def _parts(variable):
    """The replicas' parts of a variable that is put together when read."""
    state = variable.value
    if not isinstance(state, tf.distribute.DistributedValues):
        return None
    if state.synchronization != tf.VariableSynchronization.ON_READ:
        return None
    return state.values


def _combination(state):
    """How the parts make the value: `"sum"`, or `"same"` on all replicas."""
    return "sum" if state.aggregation == tf.VariableAggregation.SUM else "same"


def _assign(variable, array, combination, first_worker):
    """Gives a variable its value, or its replicas their parts."""
    parts = _parts(variable)
    several = combination is not None and parts is not None
    if several and len(parts) == len(array) and first_worker:
        for part, own in zip(parts, array):
            part.assign(own)
        return
    if combination is not None:
        array = array.sum(axis=0) if combination == "sum" else array[0]
    if parts is None:
        variable.assign(array)
        return
    # Another number of replicas: a sum goes to the first as a whole.
    to_all = "same" in (combination, _combination(variable.value))
    for index, part in enumerate(parts):
        gets = to_all or (first_worker and index == 0)
        part.assign(array if gets else np.zeros_like(array))


def _on_host(variable):
    """A NumPy copy that no later step writes to."""
    tensor = tf.convert_to_tensor(variable)
    array = tensor.numpy()
    # The array of a tensor on the CPU is the tensor's own memory.
    return array.copy() if "CPU" in tensor.device else array
