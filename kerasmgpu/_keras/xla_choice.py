"""Keeps whether XLA compiles a model's training step, and who asked for it.

`xla_trial.py` finds out which is faster, while the model trains.
"""

import dataclasses
import functools
import statistics
import weakref
from collections.abc import Callable, Generator
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

_WARM_UP = 2
"""Executions at the start of a block that are not timed."""

Seconds = dict[bool, list[float]]
"""Seconds of timed executions, by whether XLA compiled them."""


@dataclasses.dataclass(frozen=True)
class Request:
    """Request to time a step with and without XLA.

    Attributes:
        executions: Integer, timed executions of each kind.
        decide: Function of `Seconds`; true chooses XLA.
        at_once: Whether to start even if few steps are left.
    """

    executions: int
    decide: Callable[[Seconds], bool]
    at_once: bool = True


@dataclasses.dataclass
class _Known:
    """What is known of a model."""

    is_automatic: bool = False  # Compiled with `jit_compile="auto"`.
    request: Request | None = None  # That of a callback.
    choice: bool | None = None
    is_restored: bool = False  # The choice is an earlier run's.


_models: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()


def _of(model: keras.Model) -> _Known:
    return _models.setdefault(model, _Known())


@seam(Trainer, "compile")
def _compile(original: Original, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Notes whether `jit_compile` is `"auto"`, which Keras replaces."""
    given = args[7] if len(args) > 7 else kwargs.get("jit_compile", "auto")
    _models[self] = _Known(given == "auto")
    return original(self, *args, **kwargs)


def choice(model: keras.Model) -> bool | None:
    """The choice of XLA for a model's training step, measured or restored.

    `None` where there is none, as with `jit_compile=True`.
    """
    return _of(model).choice


def set_choice(model: keras.Model, uses_xla: bool) -> None:
    """Sets what `choice` returns."""
    _of(model).choice = uses_xla


def restore(model: keras.Model, uses_xla: bool | None) -> None:
    """Restores an earlier run's choice, if `compile` or a callback asked for one."""
    known = _of(model)
    is_asked = known.is_automatic or known.request is not None
    if uses_xla is not None and is_asked and is_possible(model):
        known.choice, known.is_restored = uses_xla, True


def is_restored(model: keras.Model) -> bool:
    """Whether the choice is an earlier run's."""
    return _of(model).is_restored


def uses_xla(model: keras.Model) -> bool:
    """Whether XLA compiles a model's training step: by choice or in any case."""
    return bool(model.jit_compile or choice(model))


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


def timings(
    executions: int, forms: tuple[Any, Any]
) -> Generator[Any, float | None, Seconds]:
    """Yields which form the next execution runs, and is sent its seconds.

    Args:
        executions: Integer, timed executions of each form.
        forms: What stands for the one without XLA, and for the one with it.
    """
    seconds: Seconds = {False: [], True: []}
    # Two blocks of each, in turns: a machine that becomes slower during the
    # trial affects both.
    for kind in (False, True, False, True):
        for number in range(-_WARM_UP, -(-executions // 2)):
            took = yield forms[kind]
            if number >= 0 and took is not None:
                seconds[kind].append(took)
    return seconds


def is_possible(model: keras.Model) -> bool:
    """Whether Keras lets XLA compile a model: all layers, in this setting.

    It doesn't under `tf.config.experimental.enable_op_determinism()`.
    """
    return model_supports_jit(model)


def ask(model: keras.Model, request: Request) -> None:
    """Asks for a choice; the steps of the next `fit` find it out."""
    _of(model).request = request


def request(model: keras.Model) -> Request | None:
    """Returns the request of a callback, or that of `jit_compile="auto"`."""
    return _of(model).request or automatic(model)


def automatic(model: keras.Model) -> Request | None:
    """Returns the request of `jit_compile="auto"` on GPUs; else `None`."""
    devices = model.distribute_strategy.extended.worker_devices
    if (
        _of(model).is_automatic
        and any("GPU" in device for device in devices)
        and is_possible(model)
    ):
        decide = functools.partial(faster, model)
        return Request(_EXECUTIONS, decide, at_once=False)
    return None
