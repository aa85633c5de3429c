"""Trains the user's model on one device or on replicas, and records it."""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras import sharded_parts
from kerasmgpu.commands import batches, references, user_models
from kerasmgpu.distances import dtype_of
from kerasmgpu.engine.devices import (
    leave_room,
    make_logical_cpus,
    run_as_gpus,
)
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import InputError
from kerasmgpu.flops import step_flops
from kerasmgpu.partitioner.runtime.costs import part_of
from kerasmgpu.partitioner.runtime.report import by_layer
from kerasmgpu.strategies.layouts import mesh_of
from kerasmgpu.strategies.noted_distributions import noted
from kerasmgpu.verify.float64_functions import batches_of_float64
from kerasmgpu.verify.float_types import float64_in_place_of_less
from kerasmgpu.verify.layer_outputs import layer_outputs
from kerasmgpu.verify.nudges import nudge_outputs, nudged_weights
from kerasmgpu.verify.outcome import load_arrays, save_arrays
from kerasmgpu.verify.recording import Recorder, as_array, numbers, values


def train(job: dict[str, Any], tell: Callable[[str], None]) -> dict[str, Any]:
    """Trains the model of a job and records the run.

    Args:
        job: Dictionary, as `verification.verify` makes it, with those of a run.
        tell: Function called with the name of each phase as it begins.

    Returns:
        JSON-serialisable dictionary; see `record`.

    Raises:
        InputError: If the model or the data are not as `kerasmgpu.verify`
            needs them.
    """
    strategy = note = None
    count = job["num_replicas"]
    with contextlib.ExitStack() as stack:
        if job["float64"]:
            stack.enter_context(float64_in_place_of_less())
        if job.get("runs_as_gpus"):
            run_as_gpus()
        if not job["sets_distribution"]:
            leave_room()
        if not count:
            note = stack.enter_context(noted(job["devices"], "CPU"))
        elif job["sets_distribution"]:
            make_logical_cpus(count)
        else:
            strategy = kerasmgpu.strategy(
                virtual_devices=count, **job["strategy"]
            )
        tell("importing the module of build")
        module, data = references.load(job["build"]), job["data"]
        if job["data_file"]:
            data = tuple(load_arrays(job["data_file"]))

        def build() -> tuple[keras.Model, Any]:
            return user_models.model_and_data(module, job["build"], data, tell)

        facts = record(build, strategy, job, tell)
    if note is not None:
        facts["mesh"] = mesh_of(note.distribution)
    elif job["sets_distribution"] and facts["mesh"] is None:
        raise InputError(
            "build() sets a keras.distribution on one device, and makes a model "
            f"without one where there are {count}"
        )
    return facts


def record(
    build: Callable[[], tuple[keras.Model, Any]],
    strategy: tf.distribute.Strategy | None,
    job: dict[str, Any],
    tell: Callable[[str], None] = lambda phase: None,
) -> dict[str, Any]:
    """Trains a model and records the run.

    Files are `start.npz`, `step-N.npz`, `slots-N.npz`, `predictions.npz` and
    `outputs.npz` (see `Outcome`).

    Args:
        build: Function that returns a compiled model, and its data.
        strategy: The `tf.distribute.Strategy`; `None` for stock Keras, or that
            of a `keras.distribution` that the program sets.
        job: Dictionary: `"folder"` for the files; `"seed"`, `"steps"` and
            `"global_batch_size"`; `"start"`, the file of the first run's
            initial weights or `None`; `"nudge"`, the relative size and the
            seed of random changes of these and of what layers give, or `None`;
            and `"float64"`, whether floats of the data are float64.
        tell: Function called with the name of each phase as it begins.

    Returns:
        JSON-serialisable dictionary; see `_facts`.
    """
    folder = pathlib.Path(job["folder"])
    scope = strategy.scope if strategy else contextlib.nullcontext
    keras.utils.set_random_seed(job["seed"])
    with scope():
        model, data = build()
        tell("reading the data")
        dataset = batches.first_batches(
            data, job["steps"], job["global_batch_size"]
        )
        if job["float64"]:
            dataset = batches_of_float64(dataset)
        described = [batches.describe(batch) for batch in dataset]
        if not described:
            raise InputError("the data are empty; at least one batch is needed")
        start = _set_start(model, job)
        save_arrays(folder / "start.npz", start)
        tell("leaving the strategy's scope")
    if strategy is None and is_ours(model.distribute_strategy):
        strategy = model.distribute_strategy
        scope = strategy.scope
    tell("fitting the model to the data")
    # Training draws the same numbers however many build() drew.
    keras.utils.set_random_seed(job["seed"])
    recorder = Recorder(folder)
    history = model.fit(
        dataset, verbose=0, shuffle=False, callbacks=[recorder]
    ).history
    tell("evaluating and predicting")
    facts = _facts(model, recorder, history)
    facts["batches"] = described
    facts["mesh"] = (
        mesh_of(strategy.distribution) if is_ours(strategy) else None
    )
    facts["unsharded"] = strategy and sharded_parts.why_none(model, strategy)
    programs = getattr(model.train_function, "programs", [])[:1]
    facts["partition"] = [
        part
        for program in programs
        for part in by_layer(
            program, described[0]["rows"], _naming_layers(model)
        )
    ]
    facts["evaluation"] = _evaluation(model, dataset)
    predictions = model.predict(dataset, verbose=0) if has_call(model) else []
    save_arrays(
        folder / "predictions.npz", map(as_array, tf.nest.flatten(predictions))
    )
    with scope():
        _assign(model, start)
        names, outputs = layer_outputs(model, dataset.take(1))
    facts["output_layers"] = names
    save_arrays(folder / "outputs.npz", map(as_array, outputs))
    return facts


def _naming_layers(model: keras.Model) -> Callable[[str], str]:
    """Returns a function: the layer of a model in an operation's name."""
    layers = dict(step_flops.layers_in(model))

    def name_of(operation: str) -> str:
        path = step_flops.layer_of(operation, layers)
        if path not in layers:
            return part_of(operation)
        return path.partition("/")[2] or path

    return name_of


def has_call(model: keras.Model) -> bool:
    """Whether the model has a `call`; a custom `train_step` needs none."""
    return type(model).call is not keras.Model.call


def _set_start(model: keras.Model, job: dict[str, Any]) -> list[np.ndarray]:
    """Assigns the first run's initial weights; returns all variables.

    With `job["nudge"]`, each weight then moves by as much, relatively, and so
    does what layers give from then on.
    """
    own = values(model)
    if job["start"] is None:
        return own
    start = load_arrays(job["start"])
    if [a.shape for a in start] != [a.shape for a in own]:
        raise InputError(
            "build() must make the same model each time. Received: "
            f"{len(own)} variables, before {len(start)}, or other shapes"
        )
    _assign(model, start)
    if job["nudge"]:
        start = nudged_weights(model, values(model), *job["nudge"])
        _assign(model, start)
        nudge_outputs(_layers(model), *job["nudge"])
    return start


def _assign(model: keras.Model, arrays: list[np.ndarray]) -> None:
    for variable, array in zip(model.variables, arrays):
        variable.assign(array)


def can_evaluate(model: keras.Model) -> bool:
    """Whether `evaluate` works: Keras's `test_step` needs a compiled loss.

    A model with its own `train_step` may have none.
    """
    own_train = type(model).train_step is not keras.Model.train_step
    own_test = type(model).test_step is not keras.Model.test_step
    return own_test or not own_train


def _evaluation(
    model: keras.Model, dataset: tf.data.Dataset
) -> dict[str, float] | None:
    """Returns the logs of `evaluate`, or `None` if it may not work."""
    if not can_evaluate(model):
        return None
    return numbers(model.evaluate(dataset, verbose=0, return_dict=True))


def _facts(
    model: keras.Model, recorder: "Recorder", history: dict[str, list[float]]
) -> dict[str, Any]:
    """Returns the part of `Outcome.facts` that needs none of the user's data."""
    names = (layer.name for layer in _layers(model))
    return {
        "model": model.name,
        "dtype": dtype_of(model),
        "layers": list(dict.fromkeys([*names, model.name])),
        "variables": _describe_variables(model),
        "slots": recorder.slots,
        "first_step_seconds": recorder.first_step_seconds,
        "steps": recorder.steps,
        "step_logs": recorder.logs,
        "history": {name: values[-1] for name, values in history.items()},
        "spread": recorder.spread,
    }


def _describe_variables(model: keras.Model) -> list[dict[str, str]]:
    """Returns path, layer and kind of each variable, in the model's order."""
    layer_of = {}
    for layer in _layers(model):
        for variable in layer.variables:
            layer_of[id(variable)] = layer.name
    trainable = {id(variable) for variable in model.trainable_variables}
    weights = {id(variable) for variable in model.weights}

    def kind(variable: keras.Variable) -> str:
        if id(variable) in trainable:
            return "trainable"
        return "state" if id(variable) in weights else "seed"

    return [
        {
            "path": variable.path,
            "layer": layer_of.get(id(variable), model.name),
            "kind": kind(variable),
        }
        for variable in model.variables
    ]


def _layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yields a model's layers, each nested model before its own layers."""
    for layer in model.layers:
        yield layer
        if isinstance(layer, keras.Model):
            yield from _layers(layer)
