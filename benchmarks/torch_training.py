"""One run of PyTorch's `DistributedDataParallel`: a process per replica.

Imported instead of `training`; same steps, batches and measurements.
"""

import itertools
import math
import multiprocessing
import os
import pathlib
import tempfile
import threading
import time

import numpy as np
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from benchmarks import figures, machine
from benchmarks.meter import (
    MEASURED_EPOCHS,
    EpochMeter,
    peak_memory_mb,
)
from benchmarks.torch_models import (
    TORCH_MODELS,
    load_start_weights,
    tensors,
)
from benchmarks.workloads import NUM_BATCHES, WORKLOADS
from kerasmgpu.errors import InputError


def train(job):
    """Trains a model and returns the measurements.

    Starts a process per replica and waits for all. If one fails, the others
    are ended and its error is raised.

    Args:
        job: Dictionary, see `benchmarks.training.train`.

    Returns:
        Dictionary of `figures.FIGURES`, and the facts of the model. CPU time
        and memory are sums over the replicas' processes.

    Raises:
        InputError: If PyTorch sees fewer GPUs than there are replicas.
    """
    if not job["virtual_devices"]:
        _require_gpus(job["replicas"])
    rows, count = job["global_batch_size"], job["replicas"]
    x, y = WORKLOADS[job["workload"]].arrays(
        np.random.default_rng(1), rows * NUM_BATCHES
    )
    results = multiprocessing.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        np.save(pathlib.Path(folder, "x.npy"), x)
        np.save(pathlib.Path(folder, "y.npy"), y)
        torch.multiprocessing.spawn(
            _replica, (job, folder, results), nprocs=count
        )
    return _together([results.get() for _ in range(count)], job)


def _require_gpus(count):
    visible = torch.cuda.device_count()
    if visible < count:
        raise InputError(
            f"torch {torch.__version__} sees {visible} of the {count} GPUs "
            "asked for; install a build for their CUDA (pytorch.org says "
            "which), or pass --virtual_devices"
        )


def _together(measured, job):
    """Combines the replicas' measurements into the result of a run."""
    measured.sort(key=lambda replica: replica["rank"])
    rows, count = job["global_batch_size"], job["replicas"]
    epochs = figures.over_processes([replica["epochs"] for replica in measured])
    return {
        **figures.of_epochs(epochs[1:], job["steps"], rows),
        "seconds_to_first_step": max(
            replica["seconds_to_first_step"] for replica in measured
        ),
        "peak_memory_mb": sum(
            replica["peak_memory_mb"] for replica in measured
        ),
        # A replica's loss is `count` times its part of the global batch's loss.
        "first_loss": sum(r["first_loss"] for r in measured) / count,
        "last_loss": sum(r["last_loss"] for r in measured) / count,
        "global_batch_size": rows,
        "parameters": measured[0]["parameters"],
        "devices": [replica["device"] for replica in measured],
    }


def _replica(rank, job, folder, results):
    """Runs one replica in its process; puts measurements into `results`."""
    _end_with_parent()
    count, on_cpu = job["replicas"], job["virtual_devices"]
    torch.set_num_threads(max(1, machine.usable_cores() // count))
    device = torch.device("cpu") if on_cpu else torch.device("cuda", rank)
    if not on_cpu:
        torch.cuda.set_device(device)
        # TensorFlow and JAX multiply float32 on GPUs as TF32 too.
        torch.set_float32_matmul_precision("high")
    torch_model = TORCH_MODELS[job["workload"]]
    model = torch_model.build(device)
    load_start_weights(model)
    model.to(device)
    pairs, weight = _share(job, folder, rank)
    if not on_cpu:
        pairs = [(x.pin_memory(), y.pin_memory()) for x, y in pairs]
    distributed.init_process_group(
        "gloo" if on_cpu else "nccl",
        store=distributed.FileStore(f"{folder}/meeting_point", count),
        rank=rank,
        world_size=count,
    )
    measured = _measure(torch_model, model, pairs, weight, device, job["steps"])
    results.put({"rank": rank, "device": str(device), **measured})
    distributed.destroy_process_group()
    # Gloo's threads may hold tensors during the interpreter's shutdown and then
    # abort the process: 4 of 100 runs of `embeddings` did (pytorch/pytorch,
    # pull request 179291). The results have been sent already.
    os._exit(0)


def _end_with_parent():
    """Kills this process when its parent ends, even by SIGKILL."""

    def wait():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _share(job, folder, rank):
    """Returns a replica's rows of each batch, and the factor of its loss.

    `DistributedDataParallel` averages the replicas' gradients. The average is
    the gradient of the global batch's mean loss, even with unequal shares, if a
    replica's loss is the sum of its rows' losses, divided by the **global**
    number of rows and multiplied by the number of replicas.

    Returns:
        List of pairs of tensors, and a float.
    """
    x, y = (
        # Memory-mapped, so that a replica reads its share only.
        np.load(pathlib.Path(folder, name), mmap_mode="r")
        for name in ("x.npy", "y.npy")
    )
    rows, count = job["global_batch_size"], job["replicas"]
    first, last = rows * rank // count, rows * (rank + 1) // count
    pairs = [
        tensors(
            x[start + first : start + last], y[start + first : start + last]
        )
        for start in range(0, len(x), rows)
    ]
    return pairs, count / (rows * math.prod(y.shape[1:]))


def _measure(torch_model, model, pairs, weight, device, steps):
    """Trains like `training.train`: one step, then epochs of `steps`."""
    begin = time.perf_counter()
    # No `device_ids`: the module is on its device, and so are the batches.
    replica = DistributedDataParallel(model)
    optimizer = torch_model.optimizer(replica.parameters())

    def run(batches, count):
        total = 0.0
        for x, y in itertools.islice(batches, count):
            optimizer.zero_grad()
            loss = torch_model.loss(replica(x), y) * weight
            loss.backward()
            optimizer.step()
            total += loss.detach()
        # `item` is the only synchronisation with the device.
        return total.item() / count

    first_loss = run(_batches(pairs, device), 1)
    seconds_to_first_step = time.perf_counter() - begin
    batches, meter, epochs = _batches(pairs, device), EpochMeter(), []
    for _ in range(1 + MEASURED_EPOCHS):  # The first epoch is the warm-up.
        meter.begin()
        last_loss = run(batches, steps)
        epochs.append(meter.end())
    return {
        "first_loss": first_loss,
        "last_loss": last_loss,
        "seconds_to_first_step": seconds_to_first_step,
        "epochs": epochs,
        "peak_memory_mb": peak_memory_mb(),
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def _batches(pairs, device):
    """Yields the batches on the device, repeated without end."""
    for x, y in itertools.cycle(pairs):
        yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)
