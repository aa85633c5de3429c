"""Folders of runs made up by hand; the figures are round ones."""

import json
import math
import pathlib


def write(folder, **files):
    """Writes files into a folder: dictionaries as JSON, lists as JSON lines.

    Args:
        folder: Path-like; it is created.
        files: Names, with `_` in place of the dot, and contents.

    Returns:
        `pathlib.Path` of the folder.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        elif not isinstance(content, str):
            content = json.dumps(content)
        (folder / f"{stem}.{suffix}").write_text(content)
    return folder


def facts(replicas=2, workers=1, **others):
    """A `run.json`."""
    gpus = replicas // workers
    return {
        "started": 1_700_000_000.0,
        "ended": 1_700_000_100.0,
        "model": "autoencoder",
        "parameters": {"trainable": 1_234_567, "all": 1_234_999},
        "state_bytes": {"weights": 4 << 20, "slots": 8 << 20, "other": 512},
        "optimizer": {"name": "Adam", "learning_rate": 0.001},
        "global_batch_size": 1024,
        "steps_per_epoch": 100,
        "epochs": 12,
        "replicas": replicas,
        "workers": workers,
        "devices": [f"GPU:{i} (NVIDIA H100 80GB HBM3)" for i in range(gpus)],
        "strategy": {"name": "MirroredStrategy", "batch_norm": "global"},
        "versions": {"kerasmgpu": "0.2.0", "tensorflow": "2.21.0"},
        "sent_per_step": [
            {
                "kind": "all_reduce",
                "purpose": "gradients",
                "bytes": 4 << 20,
            },
            {
                "kind": "all_reduce",
                "purpose": "statistics",
                "bytes": 3 << 10,
            },
        ],
        "layers": [
            {"layer": "up", "held": 5 << 20, "sent": 0, "by": []},
            {
                "layer": "down",
                "held": 1 << 20,
                "sent": 3 << 10,
                "by": ["all_reduce", "all_gather"],
            },
        ],
        **others,
    }


def epochs(count=12, replicas=2, workers=1, rate=10_000.0, offset=0.0):
    """Records of epochs: the loss of epoch `n` is `offset + 2 / n`."""
    records = []
    for epoch in range(1, count + 1):
        speed = rate * (0.9 if epoch == 1 else 1 + 0.02 * math.sin(epoch))
        steps = speed / 1024
        record = {
            "epoch": epoch,
            "seconds": 100 / steps,
            "loss": offset + 2 / epoch,
            "val_loss": offset + 2 / epoch + 0.01 * epoch,
            "accuracy": 1 - 0.8 / epoch,
            "val_accuracy": 1 - 0.85 / epoch,
            "learning_rate": 0.001 * 0.8**epoch,
            "examples_per_second": speed,
            "examples_per_second_per_replica": speed / replicas,
            "steps_per_second": steps,
            "step_seconds_median": 0.98 / steps,
            "step_seconds_p95": 1.3 / steps,
            "input_wait_share": 0.25 / epoch,
            "wall_seconds": 100 / steps + 2.5 + 4.0 * (epoch == 1),
            "validation_seconds": 1.5,
            "gpu_utilization_mean": 0.9,
        }
        if workers > 1:
            record |= {
                "slowest_worker": 1,
                "slowest_worker_step_seconds": 0.9 / steps,
                "fastest_worker_step_seconds": 0.7 / steps,
            }
        records.append(record)
    return records


def times(count=12, workers=1, rate=10_000.0):
    """What the time of epochs went to."""
    steps = 100 * 1024 / rate
    together = 0.2 * steps * (workers > 1)
    lines = [
        {
            "epoch": n,
            "computation": 0.8 * steps - together,
            "waiting for input": 0.2 * steps,
            "communication, waiting for other workers": together,
            "tracing and compilation": 4.0 * (n == 1),
            "validation": 1.5,
            "checkpoints": 0.7,
            "callback Tracker": 0.3,
            "callback History": 0.001,
            "other": 0.01,
        }
        for n in range(1, count + 1)
    ]
    return [*lines, {"epoch": count, "checkpoints": 1.0}]


def histograms(count=12, median=0.1):
    """Histograms of 100 steps."""
    first = round(math.log10(median) * 40) - 3
    edges = [10 ** (n / 40) for n in range(first, first + 10)]
    counts = [2, 14, 40, 24, 9, 4, 3, 3, 1]
    return [
        {"epoch": n, "edges": edges, "counts": counts}
        for n in range(1, count + 1)
    ]


def samples(devices=2, workers=1, count=120, load=0.9):
    """Samples of devices, one per second."""
    lines = []
    for second in range(count):
        for number in range(devices):
            wave = math.sin(second / 7 + number)
            worker = number * workers // devices
            lines.append(
                {
                    "time": 1_700_000_000.0 + second,
                    "worker": worker,
                    "device": f"GPU:{number - worker * devices // workers}",
                    "name": "NVIDIA H100 80GB HBM3",
                    "utilization": min(1.0, load + 0.08 * wave),
                    "memory_bytes": (30 << 30) + (second << 22),
                    "memory_peak_bytes": 40 << 30,
                    "memory_total_bytes": 80 << 30,
                    "temperature_celsius": 40 + 25 * (1 - 0.97**second),
                    "power_watts": 500 + 60 * wave + 20 * number,
                    "throttle_reasons": ["sw power cap"]
                    if second % 10 == 0
                    else ["idle"],
                }
            )
        lines += [
            {
                "time": 1_700_000_000.0 + second,
                "worker": worker,
                "device": "host",
                "cpu_utilization": 3.5 + math.sin(second / 9),
                "memory_bytes": 6 << 30,
            }
            for worker in range(workers)
        ]
    return lines


def complete(folder, replicas=2, workers=1, rate=10_000.0, offset=0.0):
    """A folder with all files; `rate` examples per second."""
    return write(
        folder,
        run_json=facts(replicas, workers),
        history_jsonl=epochs(12, replicas, workers, rate, offset),
        times_jsonl=times(12, workers, rate),
        steps_jsonl=histograms(median=1024 / rate),
        devices_jsonl=samples(replicas, workers),
    )
