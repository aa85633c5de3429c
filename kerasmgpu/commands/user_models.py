"""Calls the user's functions for the model and its data."""

import types
from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu.commands import references, user_errors
from kerasmgpu.errors import InputError


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
            `strategies.distributions.noted`.
        flag: String, the flag with their number, for an error.

    Raises:
        InputError: See `model_and_data`; if the program fails with these
            devices.
    """
    try:
        module = references.load(build_name)
        return model_and_data(module, build_name, data)
    except Exception as error:
        if not listed:
            raise
        raise InputError(
            f"{build_name} raised {user_errors.in_one_line(error)}. It was "
            f"called with the {len(set(listed))} devices of {flag}: give the "
            "number that its mesh needs"
        ) from error
