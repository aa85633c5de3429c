"""Calls the user's functions for the model and its data."""

import types
from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu.commands import references
from kerasmgpu.errors import InputError


def build(function: Callable[[], Any]) -> tuple[keras.Model, Any]:
    """Calls the user's function.

    Returns:
        The compiled `keras.Model`, and its data or `None`.

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


def data_of(module: types.ModuleType, build: str, data: str | None) -> Any:
    """Returns the data of a reference, or those of the model's module.

    Args:
        module: The module of `build`, imported.
        build: String, `"module:function"`.
        data: String like it, or `None`: the function `data` of `module`.

    Raises:
        InputError: If there is no such function.
    """
    if data is None:
        return data_in(module)
    # In the module of build the function exists already.
    if data.rpartition(":")[0] != build.rpartition(":")[0]:
        module, _ = references.load(data)
    return references.function_of(module, data.rpartition(":")[2])()


def data_in(module: types.ModuleType) -> Any:
    """Returns the result of the function `data` of the model's module.

    Raises:
        InputError: If the module has no such function.
    """
    if not callable(getattr(module, "data", None)):
        raise InputError(
            "no data. Return (model, data) from build(), define data() in "
            f"{module.__name__}, or pass --data=MODULE:FUNCTION"
        )
    return module.data()
