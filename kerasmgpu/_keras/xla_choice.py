"""Keeps whether XLA compiles a model's training step, and who asked for it.

`xla_trial.py` finds out which is faster, while the model trains.
"""

import dataclasses
import functools
import statistics
import weakref
from collections.abc import Callable
from typing import Any

import keras
from absl import logging
from keras.src.trainers.trainer import model_supports_jit

from kerasmgpu._keras.versions import Trainer
from kerasmgpu.engine.seams import Original, seam
from kerasmgpu.job import workers

WORTH = 0.97
"""XLA is chosen if a step takes less than this share of a step without it.

The margin pays for compiling for every new shape, such as an epoch's last batch.
"""

_EXECUTIONS = 20
"""Timed executions of each kind, where nobody says another number."""

WARM_UP = 2
"""Executions at the start of a block that are not timed."""

Seconds = dict[bool, list[float]]
"""Seconds of timed executions, by whether XLA compiled them."""

_automatic: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that were compiled with `jit_compile="auto"`."""

_requests: "weakref.WeakKeyDictionary[Any, Request]" = (
    weakref.WeakKeyDictionary()
)
"""Requests of callbacks."""

_restored: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models whose choice is an earlier run's."""

_choices: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""Choices that were made, or restored."""


@seam(Trainer, "compile")
def _compile(original: Original, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Notes whether `jit_compile` is `"auto"`, which Keras replaces."""
    _choices.pop(self, None)
    _restored.discard(self)
    _requests.pop(self, None)
    _automatic.discard(self)
    given = args[7] if len(args) > 7 else kwargs.get("jit_compile", "auto")
    if given == "auto":
        _automatic.add(self)
    return original(self, *args, **kwargs)


def choice(model: keras.Model) -> bool | None:
    """The choice of XLA for a model's training step, measured or restored.

    `None` where there is none, as with `jit_compile=True`.
    """
    return _choices.get(model)


def set_choice(model: keras.Model, uses_xla: bool) -> None:
    """Sets what `choice` returns."""
    _choices[model] = uses_xla


def restore(model: keras.Model, uses_xla: bool | None) -> None:
    """Takes over an earlier run's `choice`, unless `compile` says otherwise."""
    is_asked = model in _automatic or model in _requests
    if uses_xla is not None and is_asked and is_possible(model):
        _choices[model] = uses_xla
        _restored.add(model)


def is_restored(model: keras.Model) -> bool:
    """Whether the choice is an earlier run's."""
    return model in _restored


def uses_xla(model: keras.Model) -> bool:
    """Whether XLA compiles a model's training step: by choice or in any case."""
    return bool(model.jit_compile or _choices.get(model))


def faster(
    model: keras.Model,
    seconds: Seconds,
    say: Callable[[str], None] = logging.info,
) -> bool:
    """Chooses whether to use XLA: it is if faster by a margin (`WORTH`).

    Collective.

    Args:
        say: Function that is passed a line with both medians.
    """
    strategy = model.distribute_strategy
    medians = [statistics.median(seconds[kind]) for kind in (False, True)]
    if workers.count(strategy) > 1:
        # All workers must choose alike: compare the slowest worker's times.
        medians = workers.gather(strategy, medians).max(0).tolist()
    without, with_xla = (
        1e3 * one / model.steps_per_execution for one in medians
    )
    chosen = with_xla < WORTH * without
    say(
        f"kerasmgpu: a step takes {without:.4g} ms without XLA and "
        f"{with_xla:.4g} ms with it; training continues "
        f"{'with' if chosen else 'without'} it."
    )
    return chosen


@dataclasses.dataclass(frozen=True)
class Request:
    """Asks for a choice.

    Attributes:
        executions: Integer, timed executions of each kind.
        decide: Function from `Seconds` to whether XLA compiles the step.
        at_once: Whether to begin however little training is left.
    """

    executions: int
    decide: Callable[[Seconds], bool]
    at_once: bool = True


def is_possible(model: keras.Model) -> bool:
    """Whether Keras lets XLA compile a model: all layers, in this setting.

    It doesn't under `tf.config.experimental.enable_op_determinism()`.
    """
    return model_supports_jit(model)


def ask(model: keras.Model, request: Request) -> None:
    """Asks for a choice; the steps of the next `fit` find it out."""
    _requests[model] = request


def request(model: keras.Model) -> Request | None:
    """Returns the request of a callback, or that of `jit_compile="auto"`."""
    return _requests.get(model) or automatic(model)


def automatic(model: keras.Model) -> Request | None:
    """Returns the request of `jit_compile="auto"` on GPUs; else `None`."""
    devices = model.distribute_strategy.extended.worker_devices
    if (
        model in _automatic
        and any("GPU" in device for device in devices)
        and is_possible(model)
    ):
        decide = functools.partial(faster, model)
        return Request(_EXECUTIONS, decide, at_once=False)
    return None
