"""Says why nothing of a model is sharded, although its strategy has `shard`."""

import math
from collections.abc import Callable
from typing import Any

import keras

from kerasmgpu._keras import training_state
from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable


def why_none(model: keras.Model, strategy: ExactStrategy) -> str | None:
    """Returns the reason if `shard` divides no variable of a model, or `None`.

    Args:
        model: `keras.Model` with all its variables, those of the optimizer
            too.
        strategy: Its strategy.
    """
    shard, replicas = strategy.shard, strategy.num_replicas_in_sync
    is_alone = replicas == 1 and strategy.offload is None
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
    what, found = "variable", both
    if shard == "optimizer":
        what, found = "slot of an optimizer", slots
    elif shard == "embeddings":
        what = "table of a keras.layers.Embedding"
        found = [
            layer.embeddings
            for layer in model._flatten_layers()
            if isinstance(layer, keras.layers.Embedding)
        ]
    found = [one for one in found if len(one.shape)]  # No counters.
    shown = "a function" if callable(shard) else repr(shard)
    return (
        f"shard={shown} divides nothing of the model {model.name!r}: "
        f"{_reason(shard, what, found, strategy.min_shard_bytes)}. Each of the "
        f"{replicas} replicas holds all of it"
    )


def _reason(
    shard: str | Callable[..., Any] | None,
    what: str,
    found: list[keras.Variable],
    least: int,
) -> str:
    if not found:
        return f"it has no {what}"
    largest = max(found, key=_num_bytes)
    if _num_bytes(largest) < least:
        return (
            f"its largest {what}, {largest.path!r}, has "
            f"{_num_bytes(largest):,} bytes, and min_shard_bytes={least}"
        )
    if callable(shard):
        return f"the function chose no {what}"
    return f"no {what} has an axis with an element per replica"


def _num_bytes(variable: keras.Variable) -> int:
    return math.prod(variable.shape) * variable.value.dtype.size
