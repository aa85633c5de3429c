"""Says what was alive in a step that ran out of memory, and what would fit."""

import collections
import random
from typing import Any

import keras
import tensorflow as tf

from kerasmgpu.commands import traced_step
from kerasmgpu.engine import context, devices
from kerasmgpu.engine.feeds import Feed
from kerasmgpu.flops.step_flops import layer_of
from kerasmgpu.memory import counting
from kerasmgpu.memory.memory_report import PARTS, size
from kerasmgpu.memory.state_bytes import Setting
from kerasmgpu.memory.step_memory import step_peak
from kerasmgpu.memory.traced_step import TracedStep, with_variables
from kerasmgpu.partitioner.lowering.replicas import Replicas
from kerasmgpu.partitioner.mesh import Mesh
from kerasmgpu.partitioner.runtime.function import Partitioned
from kerasmgpu.strategies.auto_layouts import AutoLayouts
from kerasmgpu.strategies.layouts import layouts_of

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
    strategy = model.distribute_strategy
    rows = rows_of(feed)
    limit = device_bytes(strategy)
    command = _command(strategy, rows, limit)
    replicas = strategy.num_replicas_in_sync
    shard = shard_of(strategy)
    head = f"A training step of {model.name!r} ran out of memory"
    if rows is None or not are_dense(feed.batch_specification):
        return f"{head}. To see what is alive, and what fits, run: {command}"
    step = traced(model, feed.batch_specification, rows)
    parts = strategy.micro_batches
    parts = 1 if parts == "auto" else int(parts)
    own = {
        "shard": "layout" if strategy.distribution is not None else shard,
        "shard_over": strategy.shard_over,
        "offload": strategy.offload,
        "recompute": strategy.recompute,
        "micro_batches": parts,
    }
    head += (
        f": {rows} rows on {replicas} replica{'s' if replicas > 1 else ''}, "
        f"{_setting(own)}."
    )
    lines = [head]
    if _is_predicted(shard):
        job = job_of(strategy, limit, [parts])
        (now,) = counting.settings(step, job, replicas, shard)
        shares = [f"{part} {size(now[part])}" for part in PARTS if now[part]]
        lines = [
            f"{head} Predicted: {size(now['total'])} on each"
            + (f", of {size(limit)} for tensors" if limit else "")
            + f" ({', '.join(shares)}).",
            "Alive at the peak, by layer: "
            f"{_layers(model, step, shard, parts)}.",
        ]
    lines += [
        _fitting(step, strategy, limit),
        f"For other settings run: {command}",
    ]
    return "\n".join(lines)


def shard_of(strategy: Any) -> Any:
    """Returns what a strategy shards, as `counting.settings` takes it.

    A function of the user's own is returned, too; that is not predicted.
    """
    if isinstance(strategy.layouts, AutoLayouts):
        return strategy.layouts  # Its distribution doesn't know what was found.
    if strategy.distribution is not None:
        return strategy.distribution
    return strategy.shard or "none"


def _is_predicted(shard: Any) -> bool:
    """Whether `counting.settings` takes it: not a function of the user's own."""
    return isinstance(shard, AutoLayouts) or not callable(shard)


def device_bytes(strategy: tf.distribute.Strategy) -> int | None:
    """Returns bytes for tensors on a replica's device; `None` if unknown."""
    return devices.memory_of(strategy.extended.worker_devices[0])


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
        ),
    )


def _fitting(step: TracedStep, strategy: Any, limit: int | None) -> str:
    """Says which settings fit or, without a `limit`, what each one takes."""
    found, replicas = [], strategy.num_replicas_in_sync
    shards: list[Any] = ["none", "optimizer", "weights"]
    if strategy.distribution is not None:
        shards = [shard_of(strategy)]
    numbers: list[int] | None = [1]
    if strategy.divides_rows:
        numbers = None if limit else [2, 4]
    job = job_of(strategy, limit, numbers)
    for shard in shards[: 3 if replicas > 1 or strategy.offload else 1]:
        found += counting.settings(step, job, replicas, shard)
    own = shard_of(strategy)
    recomputes = step.jit_compile or strategy.recompute
    if limit and _is_predicted(own) and not recomputes:
        again = job | {"recompute": "auto", "micro_batches": [1]}
        found += counting.settings(step, again, replicas, own)
    if limit and not any(row["fits"] for row in found):
        # Where replicas share the host's memory, offload doesn't save any.
        job["offload"] = "optimizer"
        for shard in shards[1:] or shards:
            if job["device_type"] == "GPU" and not strategy.offload:
                found += counting.settings(step, job, replicas, shard)
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
    return (
        f"Nothing fits on {replicas} of these devices: the least is "
        f"{size(least['total'])} with {_setting(least)}, most of it {largest}. "
        "Take more replicas, a smaller batch or mixed_float16."
    )


def job_of(
    strategy: Any, limit: int | None, numbers: list[int] | None = None
) -> dict[str, Any]:
    """Returns a job for `counting.settings`, of a strategy's replicas.

    Args:
        limit: Integer, bytes of a device, or `None` if unknown.
        numbers: Micro-batches to try. Default: the fewest that fit.
    """
    return {
        "usable": limit,
        "micro_batches": numbers,
        "shard_over": strategy.shard_over,
        "min_shard_bytes": strategy.min_shard_bytes,
        "offload": strategy.offload,
        "batch_size_per_replica": None,
        "replicas_per_worker": len(strategy.extended.worker_devices),
        "device_type": "CPU" if strategy.replicas.mesh.shares_memory else "GPU",
    }


def _setting(row: dict[str, Any]) -> str:
    settings = [f"micro_batches={row['micro_batches']}"]
    shard = row["shard"]
    if shard not in ("none", "layout"):
        shown = "a function" if callable(shard) else repr(shard)
        settings.insert(0, f"shard={shown}")
        if row.get("shard_over"):
            settings.insert(1, f"shard_over={row['shard_over']}")
    if row["offload"]:
        settings.insert(-1, f"offload={row['offload']!r}")
    if row["recompute"] not in (None, "none"):
        settings.append(f"recompute={row['recompute']!r}")
    return ", ".join(settings)


def _layers(
    model: keras.Model, step: TracedStep, shard: Any, parts: int
) -> str:
    strategy = model.distribute_strategy
    replicas = strategy.num_replicas_in_sync
    paths = {layer.path for layer in model._flatten_layers() if layer.path}
    layers: collections.Counter[str] = collections.Counter()
    job = job_of(strategy, None)
    num_workers = replicas // job["replicas_per_worker"]
    if not isinstance(shard, str):
        shard = layouts_of(shard, num_workers, parts)
    setting = Setting(
        replicas,
        shard,
        parts,
        num_workers=num_workers,
        device_type=job["device_type"],
        groups=strategy.replicas.mesh.groups,
        recompute=strategy.recompute,
        limit=device_bytes(strategy),
        offloads=strategy.offload is not None,
        min_shard_bytes=strategy.min_shard_bytes,
    )
    peak = step_peak(step, setting)
    for scope, num_bytes in peak.scopes.items():
        path = layer_of(f"{scope}/", paths).strip("/") or "the step itself"
        layers[path.removeprefix(f"{model.name}/")] += num_bytes
    largest = layers.most_common(_MOST_LAYERS)
    shown = [f"{name} {size(num_bytes)}" for name, num_bytes in largest]
    rest = layers.total() - sum(num_bytes for _, num_bytes in largest)
    if rest:
        shown.append(f"{len(layers) - len(largest)} others {size(rest)}")
    return ", ".join(shown)


def _command(strategy: Any, rows: int | None, limit: int | None) -> str:
    flags = [f"--replicas={strategy.num_replicas_in_sync}"]
    if rows is not None:
        flags.append(f"--global_batch_size={rows}")
    if strategy.shard_over:
        flags.append(f"--shard_over={strategy.shard_over}")
    if strategy.offload:
        flags.append(f"--offload={strategy.offload}")
    if limit:
        flags.append(f"--device_memory={limit >> 20}MiB")
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
