"""Runs a case on one device or in a strategy's scope, and compares the two."""

import contextlib
import dataclasses
import math
import random

import keras
import numpy as np


@dataclasses.dataclass
class Outcome:
    """What a program ended with."""

    before: list
    weights: list
    history: dict
    step_logs: list
    evaluation: dict
    prediction: object
    data_changed: bool
    spread: float


class Witness(keras.callbacks.Callback):
    """Keeps the logs of every step, and how far the replicas' copies part."""

    def __init__(self):
        super().__init__()
        self.logs, self.spread = [], 0.0

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({key: float(np.mean(v)) for key, v in logs.items()})

    def on_epoch_end(self, epoch, logs=None):
        self.spread = max(self.spread, replica_spread(self.model))


def run(case, strategy=None, **settings):
    """The `Outcome` of a case; see `trained`."""
    return trained(case, strategy, **settings)[0]


def trained(case, strategy=None, evaluates=None, predicts=None, prepare=None):
    """Fits, evaluates and predicts a case's program.

    Args:
        case: `registry.Case`.
        strategy: Strategy in whose scope the model is made, or `None` for one
            device.
        evaluates: Whether the trained model is evaluated. Default: the case's.
        predicts: Whether it predicts. Default: the case's.
        prepare: Function of the model that is made, before it is trained.

    Returns:
        The `Outcome`, and the `registry.Program`.
    """
    restart()
    with case.in_precision():
        with strategy.scope() if strategy else contextlib.nullcontext():
            program = case.make()
        if case.jit_compile is not None:
            program.model.jit_compile = case.jit_compile
        if prepare is not None:
            prepare(program.model)
        outcome = _fitted(
            program,
            case.evaluates if evaluates is None else evaluates,
            case.predicts if predicts is None else predicts,
        )
    return outcome, program


def restart():
    """Forgets models and settings of before, and seeds all generators."""
    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(7)
    random.seed(7)


def _fitted(program, evaluates, predicts):
    model, witness = program.model, Witness()
    kept = _copies(program.fit)
    before = [np.copy(w) for w in model.get_weights()]
    fit = {"verbose": 0, **program.fit}
    history = model.fit(callbacks=[witness], **fit).history
    if not evaluates:
        evaluate = None
    elif program.evaluate is not None:
        evaluate = program.evaluate
    elif hasattr(fit["x"], "__next__"):
        evaluate = None
    else:
        evaluate = {k: fit[k] for k in ("x", "y", "batch_size") if k in fit}
    return Outcome(
        before,
        model.get_weights(),
        history,
        witness.logs,
        evaluate and model.evaluate(verbose=0, return_dict=True, **evaluate),
        model.predict(program.predict, verbose=0) if predicts else None,
        not _same(kept, _copies(program.fit)),
        witness.spread,
    )


def _copies(fit):
    arrays = [fit.get("x"), fit.get("y")]
    arrays += [getattr(fit.get("x"), name, None) for name in ("x", "y")]
    return [np.copy(a) for a in arrays if isinstance(a, np.ndarray)]


def _same(before, after):
    return all(np.array_equal(a, b) for a, b in zip(before, after))


def weight_distance(one, many):
    """W: largest weight difference over largest weight update."""
    differences = _differences(one, many)
    return _over(max(differences, default=0.0), max(_updates(one), default=0.0))


def distance_of_each_weight(one, many):
    """Largest difference of a weight, over its own largest update.

    Weights that training moves little are not hidden behind those that it
    moves much; below a thousandth of the largest update of all, though, what
    is left is rounding.
    """
    updates = _updates(one)
    least = 1e-3 * max(updates, default=0.0)
    return max(
        (
            _over(difference, max(update, least))
            for difference, update in zip(_differences(one, many), updates)
        ),
        default=0.0,
    )


def _over(difference, update):
    if not difference:
        return 0.0
    return difference / update if update else math.inf


def _updates(one):
    """The largest update of each weight."""
    # A model that fit builds starts from the same seed in both runs.
    is_built = len(one.before) == len(one.weights)
    before = one.before if is_built else [0.0] * len(one.weights)
    return list(map(_largest_difference, one.weights, before))


def _differences(one, many):
    """The largest difference of each weight."""
    if len(one.weights) != len(many.weights):
        return [math.inf] * len(one.weights)
    return list(map(_largest_difference, one.weights, many.weights))


def _largest_difference(a, b):
    """Largest difference of two arrays; infinite if it is no number."""
    apart = np.abs(np.asarray(a, "float64") - np.asarray(b, "float64"))
    return math.inf if np.isnan(apart).any() else float(apart.max(initial=0))


def distances(one, many, by_weight=False):
    """All that must agree, by name: weights, logs, evaluation, results.

    Args:
        one, many: `Outcome`s.
        by_weight: Whether a weight's difference is relative to its own update.
    """
    of_weights = distance_of_each_weight if by_weight else weight_distance
    return {
        "weights": of_weights(one, many),
        "logs": log_distance(one.history, many.history),
        "step logs": log_distance(one.step_logs, many.step_logs),
        "evaluation": log_distance(one.evaluation, many.evaluation),
        "results": log_distance(one.prediction, many.prediction),
    }


def log_distance(one, many):
    """Largest relative difference of two nests of logs or predictions."""
    distances = [0.0]
    for a, b in zip(_flat(one), _flat(many), strict=True):
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        if a.shape != b.shape:
            return float("inf")
        differs = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if differs.any():
            scale = np.maximum(np.abs(a).max(), 1e-3)
            distances.append(float(np.abs(a - b)[differs].max() / scale))
    return float(np.max(distances))


def _flat(nest):
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in _flat(nest[key])]
    if isinstance(nest, (list, tuple)):
        return [leaf for item in nest for leaf in _flat(item)]
    return [] if nest is None else [nest]


def replica_spread(model):
    """Largest difference between the replicas' copies of any variable."""
    spread = 0.0
    for variable in model.variables + model.optimizer.variables:
        copies = [np.asarray(c) for c in getattr(variable.value, "values", ())]
        for copy in copies[1:]:
            if not np.array_equal(copy, copies[0], equal_nan=True):
                difference = np.abs(copy.astype("float64") - copies[0])
                spread = max(spread, float(np.nanmax(difference)), 1e-30)
    return spread
