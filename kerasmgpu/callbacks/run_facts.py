"""What `run.json` says of a model and of the strategy that trains it."""

import math
import platform
from typing import Any

import keras
import tensorflow as tf

import kerasmgpu
from kerasmgpu.callbacks.local_devices import device_names
from kerasmgpu.engine.exact_strategy import is_ours
from kerasmgpu.job import workers
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable


def of_model(model: keras.Model) -> dict[str, Any]:
    """The entries of `run.json` about a model and its optimizer."""
    optimizer = model.optimizer
    rate = optimizer.get_config().get("learning_rate")
    if isinstance(rate, dict):  # A schedule.
        arguments = [f"{k}={v}" for k, v in rate.get("config", {}).items()]
        rate = f"{rate.get('class_name')}({', '.join(arguments)})"
    elif isinstance(rate, float):  # A float32 has seven digits.
        rate = float(f"{rate:.7g}")
    facts: dict[str, Any] = {
        "model": model.name,
        "precision": model.dtype_policy.name,
        "xla": bool(model.jit_compile),
        "steps_per_execution": model.steps_per_execution,
        "optimizer": {"name": type(optimizer).__name__, "learning_rate": rate},
    }
    if model.built:
        known = {id(v) for v in [*model.weights, *optimizer.variables]}
        others = [v for v in model.variables if id(v) not in known]
        trainable = sum(math.prod(v.shape) for v in model.trainable_weights)
        facts["parameters"] = {
            "trainable": trainable,
            "all": model.count_params(),
        }
        facts["state_bytes"] = {
            "weights": _bytes(model.weights),
            "slots": _bytes(optimizer.variables),
            "other": _bytes([*others, *model.metrics_variables]),
        }
    return facts


def _bytes(variables: list[Any]) -> int:
    """Bytes of variables on the replica that holds most of them."""
    total = 0
    for variable in variables:
        held = variable.value
        parts = held.parts if isinstance(held, ShardedVariable) else [variable]
        size = tf.as_dtype(variable.dtype).size
        total += max(math.prod(part.shape) for part in parts) * size
    return total


def of_strategy(strategy: tf.distribute.Strategy) -> dict[str, Any]:
    """The entries of `run.json` about where and by what a model is trained."""
    name = type(strategy).__name__
    arguments: dict[str, Any] = {"name": name.lstrip("_")}
    if is_ours(strategy):
        for name in ("batch_norm", "shard", "micro_batches"):
            value = getattr(strategy, name)
            arguments[name] = getattr(value, "__name__", value)
    return {
        "replicas": strategy.num_replicas_in_sync,
        "workers": workers.count(strategy),
        "devices": device_names(strategy),
        "strategy": arguments,
        "versions": {
            "kerasmgpu": kerasmgpu.__version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
    }
