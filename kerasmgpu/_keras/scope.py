"""Finds what was made outside `strategy.scope()`; raises, or warns."""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from kerasmgpu.engine import entered
from kerasmgpu.engine.exact_strategy import ExactStrategy, is_ours
from kerasmgpu.engine.extended import in_job, most_replicas
from kerasmgpu.errors import InputError

_checked = weakref.WeakKeyDictionary()
"""Maps models to the parts with which they last passed the check."""
_has_warned = False

_told: weakref.WeakSet[keras.Model] = weakref.WeakSet()
"""Models of which the warning of `of_model` has been given."""


def check(model: keras.Model) -> None:
    """Raises unless a model is wholly inside or wholly outside our scopes.

    The result is cached until the model is compiled or built again, since
    `train_on_batch` checks before every step.

    Raises:
        InputError: With the part made in the wrong place, and the line to
            move.
    """
    strategy = model._distribute_strategy
    made_with = (
        id(model.optimizer),
        id(model._compile_metrics),
        id(tf.distribute.get_strategy()),
        _is_built(model),
    )
    if _checked.get(model) == made_with:
        return
    if is_ours(strategy):
        if strategy.num_replicas_in_sync > 1:
            _require_scope(model, strategy)
    else:
        _require_no_scope(model)
        if in_job():
            logging.warning(
                "kerasmgpu: the model %r was made outside `strategy.scope()`: "
                "each worker of the job trains a separate model. Move the lines "
                "that build and compile it into `with strategy.scope():` to "
                "train one model together.",
                model.name,
            )
    _checked[model] = made_with


def of_model(
    model: keras.Model,
) -> contextlib.AbstractContextManager[None]:
    """Returns the context in which a model trains, evaluates or predicts.

    A model that was made before a distribution was set is on one device, and is
    trained there; a warning says so.
    """
    if model._distribute_strategy is not None or entered.current() is None:
        return entered.restored()
    if model not in _told:
        _told.add(model)
        logging.warning(
            "kerasmgpu: the model %r was made before keras.distribution was "
            "set, and runs on one device. Make it, and compile it, behind "
            "set_distribution.",
            model.name,
        )
    return entered.left()


def warn_if_forgotten(model: keras.Model) -> None:
    """Warns, once in a process, that `fit` leaves a strategy's replicas unused.

    A model in the scope of any strategy, TensorFlow's included, causes no
    warning: that is intended.
    """
    global _has_warned
    replicas = most_replicas()
    if (
        _has_warned
        or replicas == 1
        or in_job()  # `check` has warned.
        or model in _told  # By `of_model`.
        or model._distribute_strategy is not None
        or tf.distribute.has_strategy()
    ):
        return
    _has_warned = True
    logging.warning(
        "kerasmgpu: the model %r was made outside `strategy.scope()`: it trains "
        "on one device, and the strategy's %d replicas are not used. Move the "
        "lines that build and compile it into `with strategy.scope():`. If one "
        "device is meant, `kerasmgpu.strategy(num_replicas=1).scope()` says so.",
        model.name,
        replicas,
    )


def _is_built(model: keras.Model) -> bool:
    parts = (*model._flatten_layers(), model._compile_metrics, model.optimizer)
    return all(part is None or part.built for part in parts)


def _require_scope(model: keras.Model, strategy: ExactStrategy) -> None:
    """Raises unless every variable of a model has a copy on each replica."""
    for what, name, variables in _parts(model):
        if any(
            _strategy_of(variable) is not strategy for variable in variables
        ):
            raise InputError(
                f"The {what} {name!r} was made outside `strategy.scope()`, so "
                "its state exists once instead of once per replica. Move the "
                "line that creates it (for what `compile` makes, the line "
                "`model.compile(…)`) into `with strategy.scope():`."
            )


def _require_no_scope(model: keras.Model) -> None:
    """Raises if a model made outside a scope would be trained in one."""
    found = {tf.distribute.get_strategy()}
    for what, _, variables in _parts(model):
        if what != "layer":
            found.update(map(_strategy_of, variables))
    if any(map(is_ours, found)):
        raise _made_outside(model)


def require_own_weights(model: keras.Model) -> None:
    """Raises if a model made outside our scopes trains variables made inside.

    Args:
        model: `keras.Model` that none of our strategies trains.

    Raises:
        InputError: If one of its layers was made in a scope.
    """
    if any(is_ours(_strategy_of(v)) for v in model.trainable_variables):
        raise _made_outside(model)


def _made_outside(model: keras.Model) -> InputError:
    return InputError(
        f"The model {model.name!r} was made outside `strategy.scope()`, so "
        "its weights exist once instead of once per replica. Move the line "
        "that builds it into `with strategy.scope():`."
    )


def _parts(model: keras.Model) -> Iterator[tuple[str, str, list[Any]]]:
    """Yields kind, name and variables of each layer, metric and optimizer."""
    for layer in model._flatten_layers():
        yield (
            "layer",
            layer.name,
            (layer._trainable_variables + layer._non_trainable_variables),
        )
    for metric in model.metrics:
        # Keras wraps the metrics of `compile` in a container.
        for own in getattr(metric, "metrics", None) or [metric]:
            yield "metric", own.name, own.variables
    given = model._compile_metrics
    if given is not None and not given.built:
        # The container lists no metrics until the first step.
        for own in keras.tree.flatten(
            [given._user_metrics, given._user_weighted_metrics]
        ):
            if isinstance(own, keras.Metric):
                yield "metric", own.name, own.variables
    if model.optimizer is not None:
        yield "optimizer", model.optimizer.name, model.optimizer.variables


def _strategy_of(variable: Any) -> Any:
    return getattr(variable.value, "distribute_strategy", None)
