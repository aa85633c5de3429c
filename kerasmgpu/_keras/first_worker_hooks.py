"""Runs callbacks on the first worker of a job only: trackers' and others.

Such a callback may read variables, and save the model: under `shard`, and for a
metric, a read is a collective. So its hooks run by `first_worker_reads.run`, in
which the other workers give their parts. On these a follower with the same
hooks takes the callback's place; the first worker tells them all places and
hooks.
"""

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras.src import utils

from kerasmgpu.engine import first_worker_reads
from kerasmgpu.engine.exact_strategy import ExactStrategy, is_ours

_HOOKS = [name for name in dir(keras.callbacks.Callback) if name[:3] == "on_"]


def agree(
    callbacks: list[keras.callbacks.Callback],
    strategy: ExactStrategy,
    is_led: Callable[[keras.callbacks.Callback], bool],
) -> None:
    """Makes the first worker's hooks collective; adds followers on the others.

    Args:
        callbacks: List of `keras.callbacks.Callback`, changed in place.
        strategy: The strategy of the model, in a job; all workers call this.
        is_led: Function that returns whether a callback runs on the first
            worker only.
    """
    if strategy.is_first_worker:
        own = [_lead(one) if is_led(one) else None for one in callbacks]
        strategy.from_first_worker(json.dumps(own).encode())
        return
    found = json.loads(strategy.from_first_worker(b""))
    others = [callback for callback in callbacks if not is_led(callback)]
    # The first worker may have more callbacks: trackers add some to each `fit`.
    callbacks[:] = []
    for hooks in found:
        if hooks is not None:
            callbacks.append(_follower(strategy, hooks))
        elif others:
            callbacks.append(others.pop(0))
    callbacks += others


def _lead(callback: keras.callbacks.Callback) -> list[str]:
    """Makes a callback's hooks run by `_run`; returns their names.

    They stay so in later `fit`s: outside of a job `_run` only calls the hook.
    """
    inner = getattr(callback, "on_first_worker", callback)
    names = [
        name for name in _HOOKS if not utils.is_default(getattr(inner, name))
    ]
    for name in names:
        if name not in vars(callback):
            hook = functools.partial(
                _run, callback, name, getattr(callback, name)
            )
            setattr(callback, name, hook)
    return names


def _follower(
    strategy: ExactStrategy, names: Sequence[str]
) -> keras.callbacks.Callback:
    made = keras.callbacks.Callback()
    made.on_first_worker = None
    made.reads_batch_logs = False  # The first worker decides for all.
    for name in names:
        setattr(made, name, functools.partial(_run, made, name, _nothing))
    return made


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing: a follower's hook, in which `_run` gives parts of reads."""


def _run(
    callback: keras.callbacks.Callback,
    name: str,
    hook: Callable[..., None],
    *args: Any,
    **kwargs: Any,
) -> None:
    strategy = getattr(callback.model, "distribute_strategy", None)
    if not is_ours(strategy) or strategy.num_workers == 1:
        return hook(*args, **kwargs)
    if "batch" in name and strategy.extended.axis_to_shard is None:
        return hook(*args, **kwargs)  # No collective per step if not needed.
    first_worker_reads.run(
        strategy,
        f"{type(callback).__name__}.{name}",
        functools.partial(hook, *args, **kwargs),
    )
