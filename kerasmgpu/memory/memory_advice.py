"""Says what was alive in a step that ran out of memory, and what would fit."""

import collections
import dataclasses
import random
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu.commands import traced_step
from kerasmgpu.division import Shard
from kerasmgpu.engine import context, devices
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.flops.step_flops import layer_of
from kerasmgpu.memory import counting, memory_report
from kerasmgpu.memory.memory_report import PARTS, size
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.step_memory import StepPeak, step_peak
from kerasmgpu.memory.traced_step import TracedStep, with_variables
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.function import Partitioned

_MOST_LAYERS = 6


def advice(model: keras.Model, feed: Feed) -> str:
    """Returns what was alive, by layer, and the settings that would fit.

    Args:
        model: `keras.Model` in training under one of our strategies.
        feed: `Feed` of its steps.

    Returns:
        String of several lines; only the command that predicts memory, if the
        rows are unknown or the batch isn't dense.
    """
    rows, setting = rows_of(feed), setting_of(model)
    limit, replicas = setting.limit, setting.num_replicas
    command = _command(setting, rows)
    head = f"A training step of {model.name!r} ran out of memory"
    if rows is None or not are_dense(feed.batch_specification):
        return f"{head}. To see what is alive, and what fits, run: {command}"
    step = traced(model, feed.batch_specification, rows)
    own = {} if setting.layouts is None else {"shard": "layout"}
    head += (
        f": {rows} rows on {replicas} replica{'s' if replicas > 1 else ''}, "
        f"{_setting(vars(setting) | own)}."
    )
    lines = [head]
    if not callable(setting.shard):
        (now,) = counting.settings(step, setting, [int(setting.micro_batches)])
        shares = [f"{part} {size(now[part])}" for part in PARTS if now[part]]
        peak = step_peak(step, setting)
        lines = [
            f"{head} Predicted: {size(now['total'])} on each"
            + (f", of {size(limit)} for tensors" if limit else "")
            + f" ({', '.join(shares)}).",
            f"Alive at the peak, by layer: {_layers(model, peak)}.",
        ]
    lines += [
        _fitting(step, setting),
        f"For other settings run: {command}",
    ]
    return "\n".join(lines)


def setting_of(model: keras.Model) -> Setting:
    """Returns the `Setting` of a model's training step: what acts on it."""
    strategy = model.distribute_strategy
    asked = dict(vars(strategy.settings))
    if asked["micro_batches"] == "auto":
        asked["micro_batches"] = 1
    if model.jit_compile:
        asked["recompute"] = None
    return Setting(
        strategy.num_replicas_in_sync,
        strategy.layouts,
        num_workers=strategy.num_workers,
        device_type="CPU" if strategy.replicas.mesh.shares_memory else "GPU",
        limit=device_bytes(strategy),
        **asked,
    )


def device_bytes(strategy: tf.distribute.Strategy) -> int | None:
    """Returns bytes for tensors on the smallest device; `None` if unknown."""
    return devices.smallest_memory(strategy.extended.worker_devices)


def traced(model: keras.Model, specification: Any, rows: int) -> TracedStep:
    """Traces the step for two replicas of one process.

    The prediction adds sharding and micro-batches later. In a job each worker
    predicts by itself: nothing here is a collective, and the seeds of later
    traces stay equal on all workers.

    Args:
        specification: Nest of `tf.TypeSpec`s of a global batch, all dense.
    """
    strategy = model.distribute_strategy
    mesh = Mesh.on(["CPU:0", "CPU:1"], strategy.replicas.mesh.host)
    partitioned = Partitioned(
        model.train_step, Replicas(mesh), strategy.extended.one_device
    )
    of_any_rows = tf.nest.map_structure(
        lambda leaf: (
            tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype)
            if leaf.shape.rank
            else leaf
        ),
        specification,
    )
    seeds = context.operation_seeds() or random.Random()
    before = seeds.getstate()
    with strategy.scope():
        program = partitioned.program((of_any_rows,))
    seeds.setstate(before)
    shapes = [
        (rows, *leaf.shape[1:]) if leaf.shape.rank else ()
        for leaf in tf.nest.flatten(specification)
    ]
    is_compiled = bool(model.jit_compile)
    return with_variables(
        model,
        traced_step.TracedStep(
            program,
            shapes,
            rows,
            bool(program.trace.sparse),
            is_compiled,
            strategy.distribution,
            None,
        ),
    )


def _tried(step: TracedStep, setting: Setting) -> list[dict[str, Any]]:
    """Returns rows, see `counting.settings`, of settings that may need less."""
    limit, found = setting.limit, []
    shards: list[Shard] = [None, "optimizer", "weights"]
    if setting.layouts is not None:
        shards = [None]
    numbers: list[int] | None = [1]
    if setting.division.divides_rows and setting.batch_norm == "global":
        numbers = None if limit else [2, 4]

    def count(numbers: list[int] | None, **others: Any) -> None:
        other = dataclasses.replace(setting, **others)
        found.extend(counting.settings(step, other, numbers))

    is_alone = setting.num_replicas == 1 and not setting.offload
    for shard in shards[: 1 if is_alone else 3]:
        count(numbers, shard=shard)
    recomputes = step.jit_compile or setting.recompute
    if limit and not callable(setting.shard) and not recomputes:
        count([1], recompute="auto")
    if limit and not any(row["fits"] for row in found):
        # Where replicas share the host's memory, offload doesn't save any.
        for shard in shards[1:] or shards:
            if not setting.shares_memory and not setting.offload:
                count(numbers, shard=shard, offload="optimizer")
    return found


def _fitting(step: TracedStep, setting: Setting) -> str:
    """Says which settings fit or, without a limit, what each one takes."""
    limit, found = setting.limit, _tried(step, setting)
    said = [
        f"{_setting(row)} ({size(row['total'])})"
        for row in found
        if row["fits"] is not False
    ]
    if not limit:
        return (
            f"The memory of the device is not known. Take: {'; '.join(said)}."
        )
    if said:
        return f"Would fit: {'; or '.join(said)}."
    least = min(found, key=lambda row: row["total"])
    largest = max(PARTS, key=lambda part: least[part])
    more = ""
    if setting.layouts is None:
        more = memory_report.advice_for_few_rows(
            step.rows, setting.num_replicas
        )
    return (
        f"Nothing fits on {setting.num_replicas} of these devices: the least is "
        f"{size(least['total'])} with {_setting(least)}, most of it {largest}. "
        f"Take more replicas, a smaller batch or mixed_float16.{more}"
    )


def _setting(row: dict[str, Any]) -> str:
    chosen = memory_report.settings(row)
    return ", ".join(
        f"{name}={'a function' if callable(value) else repr(value)}"
        for name, value in chosen.items()
    )


def _layers(model: keras.Model, peak: StepPeak) -> str:
    paths = {layer.path for layer in model._flatten_layers() if layer.path}
    layers: collections.Counter[str] = collections.Counter()
    for scope, num_bytes in peak.scopes.items():
        path = layer_of(f"{scope}/", paths).strip("/") or "the step itself"
        layers[path.removeprefix(f"{model.name}/")] += num_bytes
    largest = layers.most_common(_MOST_LAYERS)
    shown = [f"{name} {size(num_bytes)}" for name, num_bytes in largest]
    rest = layers.total() - sum(num_bytes for _, num_bytes in largest)
    if rest:
        shown.append(f"{len(layers) - len(largest)} others {size(rest)}")
    return ", ".join(shown)


def _command(setting: Setting, rows: int | None) -> str:
    limit = setting.limit
    asked = {
        "replicas": setting.num_replicas,
        "global_batch_size": rows,
        "shard_over": setting.shard_over,
        "offload": setting.offload,
        "device_memory": limit and f"{limit >> 20}MiB",
    }
    flags = memory_report.flags({k: v for k, v in asked.items() if v})
    return f"kerasmgpu memory my_module:build {' '.join(flags)}"


def rows_of(feed: Feed) -> int | None:
    """Returns the rows of a global batch; `None` if they are unknown."""
    if feed.batch_size is not None:
        return feed.batch_size
    for leaf in tf.nest.flatten(feed.batch_specification):
        if isinstance(leaf, tf.TensorSpec) and leaf.shape.rank:
            return leaf.shape[0]
    return None


def are_dense(specification: Any) -> bool:
    """Whether all leaves of a batch are tensors of known rank."""
    return all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None
        for leaf in tf.nest.flatten(specification)
    )
