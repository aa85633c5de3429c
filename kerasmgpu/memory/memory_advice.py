"""What was alive in a step that ran out of memory, and what would fit."""

import collections
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu.engine.feeds import Feed
from kerasmgpu.flops.step_flops import layer_of
from kerasmgpu.hardware.nvml import open_nvml
from kerasmgpu.memory import counting
from kerasmgpu.memory.device_memory import usable
from kerasmgpu.memory.memory_prediction import PARTS
from kerasmgpu.memory.memory_report import size
from kerasmgpu.memory.step_memory import step_peak
from kerasmgpu.memory.traced_step import TracedStep, trace_step

_MOST_LAYERS = 6


def advice(model: keras.Model, feed: Feed) -> str:
    """Returns what was alive, by layer, and the settings that would fit.

    Args:
        model: `keras.Model` in training under one of our strategies.
        feed: `Feed` of its steps.

    Returns:
        String of several lines.
    """
    strategy = model.distribute_strategy
    rows = _rows(feed)
    limit = device_bytes(strategy)
    command = _command(strategy, rows, limit)
    replicas = strategy.num_replicas_in_sync
    shard = strategy.shard or "none"
    head = f"A training step of {model.name!r} ran out of memory"
    batch = _one_row(feed.batch_specification)
    if (
        rows is None
        or batch is None
        or strategy.num_workers > 1
        or shard != "none"
    ):
        return f"{head}. To see what is alive, and what fits, run: {command}"
    step = _traced(model, batch, rows)
    parts = strategy.micro_batches
    parts = 1 if parts == "auto" else int(parts)
    job = _job(limit, [parts])
    (now,) = counting.settings(step, job, replicas, shard)
    lines = [
        f"{head}: {rows} rows on {replicas} "
        f"replica{'s' if replicas > 1 else ''}, micro_batches={parts}. "
        f"Predicted: {size(now['total'])} on each"
        + (f", of {size(limit)} for tensors" if limit else "")
        + f" ({', '.join(_parts(now))}).",
        f"Alive at the peak, by layer: "
        f"{_layers(model, step, replicas, parts)}.",
        _fitting(step, replicas, limit),
        f"For other settings run: {command}",
    ]
    return "\n".join(lines)


def device_bytes(strategy: tf.distribute.Strategy) -> int | None:
    """Returns bytes for tensors on a replica's device; `None`: not known."""
    name = strategy.extended.worker_devices[0]
    kind, number = tf.DeviceSpec.from_string(name).device_type, 0
    if kind == "CPU":
        # TensorFlow's allocator of GPUs, on the CPU: off by default.
        if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() != "true":
            return None
        megabytes = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB")
        return int(megabytes) << 20 if megabytes else None
    number = tf.DeviceSpec.from_string(name).device_index or 0
    devices = tf.config.get_visible_devices("GPU")
    if number >= len(devices):
        return None  # Several logical devices of a GPU.
    logical = tf.config.get_logical_device_configuration(devices[number])
    if logical and logical[0].memory_limit:
        return int(logical[0].memory_limit) << 20
    nvml, _ = open_nvml()
    if nvml is None:
        return None
    gpu = nvml.of_cuda_device(int(devices[number].name.rpartition(":")[2]))
    total = gpu.sample().get("memory_total_bytes") if gpu else None
    nvml.close()
    return usable(total) if total else None


def _traced(model: keras.Model, batch: Any, rows: int) -> TracedStep:
    strategy, before = (
        model.distribute_strategy,
        model.distribute_strategy.micro_batches,
    )
    # Parts are counted by the prediction.
    strategy.micro_batches = 1
    try:
        with strategy.scope():
            return trace_step(model, batch, rows)
    finally:
        strategy.micro_batches = before


def _fitting(step: TracedStep, replicas: int, limit: int | None) -> str:
    """Says which settings fit, or what each takes if the limit is unknown."""
    found = []
    for shard in ("none", "optimizer", "weights")[: 3 if replicas > 1 else 1]:
        numbers = None if limit else [2, 4]
        job = _job(limit, numbers)
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
        "Take more replicas, a smaller batch, keras.remat or mixed_float16."
    )


def _job(limit: int | None, numbers: list[int] | None) -> dict[str, Any]:
    return {
        "usable": limit,
        "micro_batches": numbers,
        "batch_size_per_replica": None,
    }


def _setting(row: dict[str, Any]) -> str:
    settings = [f"micro_batches={row['micro_batches']}"]
    if row["shard"] != "none":
        settings.insert(0, f"shard={row['shard']!r}")
    return ", ".join(settings)


def _parts(row: dict[str, Any]) -> list[str]:
    return [f"{part} {size(row[part])}" for part in PARTS if row[part]]


def _layers(
    model: keras.Model, step: TracedStep, replicas: int, parts: int
) -> str:
    paths = {layer.path for layer in model._flatten_layers() if layer.path}
    layers: collections.Counter[str] = collections.Counter()
    scopes = step_peak(step, replicas, "none", parts).scopes
    for scope, num_bytes in scopes.items():
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
    if limit:
        flags.append(f"--device_memory={limit >> 20}MiB")
    return f"kerasmgpu memory my_module:build {' '.join(flags)}"


def _rows(feed: Feed) -> int | None:
    """Rows of a global batch, where they are known."""
    if feed.batch_size is not None:
        return feed.batch_size
    for leaf in tf.nest.flatten(feed.batch_specification):
        if isinstance(leaf, tf.TensorSpec) and leaf.shape.rank:
            return leaf.shape[0]
    return None


def _one_row(specification: Any) -> Any:
    """A data set of a batch of one row; `None` for tensors without rows."""
    leaves = tf.nest.flatten(specification)
    if not all(
        isinstance(leaf, tf.TensorSpec) and leaf.shape.rank is not None
        for leaf in leaves
    ):
        return None
    batch = tf.nest.map_structure(
        lambda leaf: np.zeros(
            [size or 1 for size in leaf.shape], leaf.dtype.as_numpy_dtype
        )[:1],
        specification,
    )
    return tf.data.Dataset.from_tensors(batch)
