"""Calls the user's functions for the model and its data."""

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import keras

from kerasmgpu._keras.distribution_backend import imagined_devices
from kerasmgpu.commands import references, user_errors
from kerasmgpu.engine import entered
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.errors import InputError
from kerasmgpu.strategy_settings import check_distribution_alone


def build(function: Callable[[], Any]) -> tuple[keras.Model, Any]:
    """Calls the user's function; returns its model, and its data or `None`.

    Raises:
        InputError: If it returns no compiled model.
    """
    model, data = function(), None
    name = getattr(function, "__name__", "build")
    if isinstance(model, (tuple, list)) and len(model) == 2:
        model, data = model
    if not isinstance(model, keras.Model):
        kind = f"{type(model).__module__}.{type(model).__name__}"
        raise InputError(
            f"{name}() must return a compiled keras.Model, or (model, data). "
            f"Received: {'None' if model is None else kind}"
        )
    if not model.compiled:
        raise InputError(
            f"{name}() must return a compiled keras.Model. Received: a model "
            "that is not compiled; call `model.compile(…)` before returning it"
        )
    return model, data


def model_and_data(
    module: types.ModuleType,
    build_name: str,
    data: str | tuple[Any, ...] | None,
    tell: Callable[[str], None] = lambda phase: None,
) -> tuple[keras.Model, Any]:
    """Builds the user's model, and gets its data.

    Args:
        data: String like it; the data themselves, a tuple; or `None`: those
            that `build` returns, or the function `data` of `module`.
        tell: Function called with the name of each phase as it begins.

    Raises:
        InputError: If there is no such function, or no compiled model.
    """
    tell("build()")
    model, own = build(references.function_of(module, build_name))
    tell("data()")
    if isinstance(data, str):
        # In the module of build the function exists already.
        if data.rpartition(":")[0] != build_name.rpartition(":")[0]:
            module = references.load(data)
        return model, references.function_of(module, data)()
    if data is not None or own is not None:
        return model, own if data is None else data
    if not callable(getattr(module, "data", None)):
        raise InputError(
            "no data. Return (model, data) from build(), define data() in "
            f"{module.__name__}, or pass --data=MODULE:FUNCTION"
        )
    return model, module.data()


def loaded(
    build_name: str, data: str | None, listed: list[str], flag: str
) -> tuple[keras.Model, Any]:
    """Imports the user's module, builds the model, and gets its data.

    Args:
        data: See `model_and_data`.
        listed: Names of imagined devices that the program has asked for; see
            `strategies.noted_distributions.noted`.
        flag: String, the flag with their number, for an error.

    Raises:
        InputError: See `model_and_data`; if the program fails with these
            devices.
    """
    with naming_devices(build_name, listed, flag):
        module = references.load(build_name)
        return model_and_data(module, build_name, data)


@contextlib.contextmanager
def naming_devices(
    build_name: str, listed: list[str], flag: str
) -> Iterator[None]:
    """Context whose errors name the number of devices that a program found.

    See `loaded`. A program that has set its distribution found enough.
    """
    try:
        yield
    except Exception as error:
        if not listed or keras.distribution.distribution() is not None:
            raise
        raise InputError(
            f"{build_name} raised {user_errors.in_one_line(error)}. It was "
            f"called with the {len(set(listed))} devices of {flag}: give the "
            "number that its mesh needs"
        ) from error


@contextlib.contextmanager
def scope(strategy: Any, build_name: str, flag: str) -> Iterator[None]:
    """Scope of a command's strategy, which the program's takes the place of.

    That is the one of a `keras.distribution` that it sets, for which
    `list_devices` lists the devices of `strategy`, or one that it makes. Behind
    it, the model has its strategy; see `strategy_of`.

    Args:
        flag: See `loaded`.

    Raises:
        InputError: See `loaded`.
    """
    kind = "GPU" if "GPU" in strategy.extended.worker_devices[0] else "CPU"
    before = keras.distribution.distribution()
    try:
        with imagined_devices(strategy.num_replicas_in_sync, kind) as listed:
            entered.enter(strategy)
            with naming_devices(build_name, listed, flag):
                yield
    finally:
        keras.distribution.set_distribution(before)


def strategy_of(model: keras.Model, strategy: Any) -> Any:
    """Returns the strategy of a model that was built in `scope(strategy)`.

    Raises:
        InputError: If the program's own strategy lacks the settings of `strategy`.
    """
    own = model.distribute_strategy
    if own is strategy or not is_ours(own):
        return strategy
    check_distribution_alone(strategy.settings)
    return own
