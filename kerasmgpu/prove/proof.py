"""Proves without a GPU that a model trains on several, and rightly."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu.commands import references, tracing_process
from kerasmgpu.commands.child_processes import Start
from kerasmgpu.errors import (
    InputError,
    checked_boolean,
    checked_integer,
    checked_number,
)
from kerasmgpu.hardware import data_sheets, device_memory
from kerasmgpu.prove import gpu_targets, proof_report
from kerasmgpu.replica_arithmetic import (
    MIN_SHARD_BYTES,
    checked_mesh,
    groups_of,
    groups_of_mesh,
)
from kerasmgpu.strategy_settings import Settings
from kerasmgpu.verify.runs import copies

_REPLICAS = 8
"""Replicas if no number is given."""

_MOST_IN_NUMBERS = 16
"""Most replicas that are run on logical CPUs."""


def prove(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    replicas: int | None = None,
    *,
    mesh: Sequence[int] | None = None,
    gpu: str | None = None,
    num_workers: int = 1,
    global_batch_size: int | None = None,
    shard: str | None = None,
    shard_over: int | None = None,
    min_shard_bytes: int = MIN_SHARD_BYTES,
    offload: str | None = None,
    micro_batches: int = 1,
    recompute: str | None = None,
    jax_python: str | None = None,
    numbers: bool = True,
    steps: int = 3,
    timeout_seconds: float = 600,
    show: bool = True,
) -> dict[str, Any]:
    """Proves what can be known of a step on GPUs before there are any.

    The step is written as GPUs would get it. On it are checked: whether each
    operation has a kernel of GPUs for its types; whether no collective waits for
    ever, on any worker; and, by training that program on logical CPUs, whether
    it equals one device. With `gpu` the memory of the step is predicted and, if
    the model is compiled with XLA, each cluster is compiled ahead for that GPU.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or a pair `(model, data)`; or its name,
            `"my_module:build"` or `"path/to/file.py:build"`. It is called in
            other processes, so it must be at the top level of a module.
        data: Function without arguments, or its name, that returns the data,
            as for `kerasmgpu.verify`. Default: the data that `build` returns,
            or the function `data` of its module.
        replicas: Integer, GPUs of all workers. Default: those of `mesh`, or 8.
        mesh: Sizes of the axes of a mesh, such as `(2, 4)`, on which the layout
            that `kerasmgpu.find_layout` finds is proved. With `shard` two axes,
            groups and the replicas of each; see `kerasmgpu.strategy`. Default: all
            replicas are one axis, or the mesh that the program sets.
        gpu: String, the GPU, a key of `hardware.data_sheets.DEVICES` such as
            `"H100-SXM"`; its memory, such as `"24GiB"`; or a file that ends in
            `.txtpb`, the text of XLA's `GpuTargetConfigProto`. Default: memory is
            not predicted, and clusters aren't compiled.
        num_workers: Integer, processes of the job, each with as many GPUs.
            Defaults to 1.
        global_batch_size: Integer, rows of a global batch. Default: those of
            the first batch, or 32 for arrays.
        shard: String, what is divided; see `MirroredStrategy`. Default:
            `"none"`.
        shard_over: Integer, replicas over which `shard` divides a variable.
            Default: all.
        min_shard_bytes: Integer, bytes of the smallest variable that `shard`
            divides.
        offload: String, what is in host memory: `"optimizer"`. Default:
            `"none"`.
        micro_batches: Integer, parts in which a replica works through its
            rows. Defaults to 1.
        recompute: String, what the backward pass computes again:
            `"elementwise"`, a size that the step is to fit, such as `"20GiB"`,
            or `"auto"`, which is the memory of `gpu`. Default: nothing.
        jax_python: String, the interpreter of an environment that has `jax`,
            `jax-cuda12-plugin` and `jax-cuda12-pjrt`, which compile ahead.
            Default: this one.
        numbers: Boolean, whether to train on logical CPUs. Defaults to `True`.
        steps: Integer, steps to train. Defaults to 3.
        timeout_seconds: Number, time-out of each process in seconds. Defaults
            to 600.
        show: Boolean, whether to print progress and the page. Defaults to
            `True`.

    Returns:
        Dictionary, as `--output` writes it: `"is_proved"`; `"kernels"` (`None` if
        this TensorFlow lists none), `"order"`, `"xla"` (`None` without it),
        `"memory"` and `"numbers"` (`None` if not asked for), each with `"faults"`,
        sentences, or what they count; and `"layouts"`, the keys and axes that were
        found for a mesh, or `None`.

    Raises:
        InputError: If the model can't be traced, or an argument is invalid.

    Example:

    ```python
    report = kerasmgpu.prove("my_module:build", replicas=8, gpu="H100-SXM")
    print(report["is_proved"])
    ```
    """
    num_workers = checked_integer(num_workers, "num_workers", 1)
    if mesh is not None:
        mesh = checked_mesh(mesh)
        if replicas not in (None, math.prod(mesh)):
            raise InputError(
                "A mesh has as many replicas as its sizes multiplied; leave out "
                f"replicas. Received: mesh={mesh}, replicas={replicas}"
            )
        replicas = math.prod(mesh)
    found_on = mesh
    if mesh is not None and shard not in (None, "none"):
        _, shard_over = groups_of_mesh(mesh, num_workers, shard_over)
        found_on = None
    replicas = checked_integer(
        _REPLICAS if replicas is None else replicas, "replicas", 1
    )
    if replicas % num_workers:
        raise InputError(
            "replicas must be a multiple of num_workers. Received: "
            f"replicas={replicas}, num_workers={num_workers}"
        )
    groups_of(replicas, shard_over)
    asked = Settings(
        shard=shard,
        shard_over=shard_over,
        offload=offload,
        min_shard_bytes=min_shard_bytes,
        micro_batches=checked_integer(micro_batches, "micro_batches", 1),
        recompute=recompute,
    )
    if recompute == "auto" and gpu is None:
        raise InputError(
            "recompute='auto' makes a step fit a GPU. Received: gpu=None; "
            "give both, or the size, as recompute='20GiB'"
        )
    others = (
        *("shard_over", "offload", "min_shard_bytes", "micro_batches"),
        "recompute",
    )
    settings = {name: getattr(asked, name) for name in others}
    shard = shard or "none"
    checked_integer(steps, "steps", 1)
    checked_number(timeout_seconds, "timeout_seconds")
    memory = None if gpu is None else _memory_of(gpu)
    with copies() as start:
        report = tracing_process.run(
            "kerasmgpu.prove.proving",
            "prove",
            build,
            data,
            global_batch_size=global_batch_size,
            timeout_seconds=timeout_seconds,
            show=show,
            start=start,
            devices=replicas,
            flag="--replicas",
            device_type="GPU",
            mesh=found_on,
            replicas=replicas,
            replicas_per_worker=replicas // num_workers,
            batch_size_per_replica=None,
            usable=None if memory is None else device_memory.usable(memory),
            target=gpu_targets.target_of(gpu),
            jax_python=jax_python,
            compiler_seconds=timeout_seconds,
            shard=shard,
            settings=settings,
        )
        report.update(
            gpu=gpu,
            usable=None if memory is None else device_memory.usable(memory),
            replicas=replicas,
            settings={"shard": shard, **settings},
        )
        if found_on is None:
            settings = {"shard": shard, **settings}
        else:
            settings = {**settings, "mesh": mesh, "layout": report["layouts"]}
        report["numbers"], report["why_no_numbers"] = None, None
        if not checked_boolean(numbers, "numbers"):
            report["why_no_numbers"] = "not asked for"
        elif not 1 < replicas <= _MOST_IN_NUMBERS:
            report["why_no_numbers"] = (
                f"they are compared for 2 to {_MOST_IN_NUMBERS} replicas"
            )
        else:
            report["numbers"] = _numbers(
                references.job(build, data, "prove"),
                settings,
                replicas,
                start,
                {"steps": steps, "global_batch_size": global_batch_size},
                timeout_seconds,
                show,
            )
    report["is_proved"] = not proof_report.faults(report)
    if show:
        proof_report.print_proof(report)
    return report


def _memory_of(gpu: str) -> int:
    """Bytes of a GPU by its name, in a file, or of a size."""
    if gpu.endswith(gpu_targets.FILE_SUFFIX):
        return gpu_targets.memory_of(gpu)
    if data_sheets.named(gpu) is None and not gpu[:1].isdigit():
        raise InputError(
            f"gpu is one of {', '.join(data_sheets.DEVICES)}, a memory such as "
            f"24GiB, or a file *{gpu_targets.FILE_SUFFIX}. Received: gpu={gpu!r}"
        )
    return device_memory.parse(gpu)


def _numbers(
    functions: dict[str, Any],
    settings: dict[str, Any],
    replicas: int,
    start: Start,
    run: dict[str, Any],
    seconds: float,
    show: bool,
) -> dict[str, Any]:
    """Trains the program of GPUs on logical CPUs, and one device."""
    from kerasmgpu.verify.verification import compared

    return compared(
        functions,
        {
            **run,
            "float64": False,
            "seed": 7,
            "strategy": settings,
            "runs_as_gpus": True,
        },
        [replicas],
        start,
        seconds=seconds,
        show=show,
    )
