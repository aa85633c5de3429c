"""Says why nothing of a model is sharded, although its strategy has `shard`."""

from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu._keras import made_variables, training_state
from kerasmgpu.division import NewVariable
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable


def why_none(model: keras.Model, strategy: ExactStrategy) -> str | None:
    """Returns the reason if `shard` divides no variable of a model, or `None`.

    Args:
        model: `keras.Model` with all its variables, those of the optimizer
            too.
        strategy: Its strategy.
    """
    settings, replicas = strategy.settings, strategy.num_replicas_in_sync
    shard = settings.shard
    is_alone = replicas == 1 and settings.offload is None
    if shard is None or is_alone or strategy.distribution is not None:
        return None  # Keys of a layout map that match nothing are named.
    slots = [
        variable
        for optimizer in training_state.optimizers(model)
        for variable in optimizer.variables
    ]
    both = [*model.variables, *slots]
    if any(isinstance(one.value, ShardedVariable) for one in both):
        return None
    division = strategy.extended.axis_to_shard
    described = map(made_variables.described, both)
    found = [one for one in described if division.is_meant(one)]
    shown = "a function" if callable(shard) else repr(shard)
    return (
        f"shard={shown} divides nothing of the model {model.name!r}: "
        f"{_reason(shard, found, settings.min_shard_bytes)}. Each of the "
        f"{replicas} replicas holds all of it"
    )


def _reason(
    shard: str | Callable[..., Any] | None,
    found: list[NewVariable],
    least: int,
) -> str:
    what, fits = "variable", "an axis with an element"
    if shard == "optimizer":
        what = "slot of an optimizer"
    elif shard == "embeddings":
        what, fits = "table of a keras.layers.Embedding", "a row"
    if not found:
        return f"it has no {what}"
    largest = max(found, key=lambda one: one.num_bytes)
    if largest.num_bytes < least:
        return (
            f"its largest {what}, {largest.path!r}, has "
            f"{largest.num_bytes:,} bytes, and min_shard_bytes={least}"
        )
    if callable(shard):
        return f"the function chose no {what}"
    return f"no {what} has {fits} per replica"
