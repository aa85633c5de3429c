"""Reads the settings of a run, to compare them with those of a resumed one."""

from collections.abc import Iterator, Mapping
from typing import Any

import keras

from kerasmgpu._keras import training_state
from kerasmgpu._keras.fit import Fit

_PLAIN = (bool, int, float, str, type(None))
_NO_SETTINGS = ("name", "built")


def read(model: keras.Model, fit: Fit) -> dict[str, Any]:
    """Returns names and values of the settings of a `fit`, as plain data.

    They are those of the optimizers and their schedules, the loss, and the
    batch size. Call it before anything is restored: a learning rate is a
    variable.
    """
    found: dict[str, Any] = {}
    for number, one in enumerate(training_state.optimizers(model)):
        found |= _of_optimizer(
            one, f"optimizer {number + 1} " if number else ""
        )
    loss = getattr(model, "loss", None)
    if loss is not None:
        found["loss"] = _name(loss)
    found["batch_size"] = fit.batch_size
    return found


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns a phrase for each setting of a run that isn't the saved one's."""
    return [
        f"{name}={_text(now[name])} (saved: {_text(saved[name])})"
        for name in now
        if name in saved and now[name] != saved[name]
    ]


def _of_optimizer(optimizer: Any, prefix: str) -> dict[str, Any]:
    """Returns an optimizer's settings; of loss scaling, with the inner one's.

    `get_config` of an optimizer of the user's own may fail; attributes don't.
    """
    found: dict[str, Any] = {f"{prefix}optimizer": _name(optimizer)}
    for name, value in _attributes(optimizer):
        found[f"{prefix}{name}"] = value
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        return {**found, **_of_optimizer(inner, prefix)}
    # The private attribute, since Keras 3.0, is the schedule or the variable.
    rate = getattr(optimizer, "_learning_rate", None)
    if isinstance(rate, keras.Variable):
        found[f"{prefix}learning_rate"] = float(rate.numpy())
    elif rate is not None:
        found[f"{prefix}learning_rate"] = _name(rate)
        for name, value in _attributes(rate):
            found[f"{prefix}learning_rate.{name}"] = value
    return found


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        is_setting = name not in _NO_SETTINGS and not name.startswith("_")
        if is_setting and isinstance(value, _PLAIN):
            yield name, value


def _name(setting: Any) -> str:
    if isinstance(setting, str):
        return setting
    return getattr(setting, "__name__", None) or type(setting).__name__


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
