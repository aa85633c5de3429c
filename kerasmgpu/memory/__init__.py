"""Predicts the memory of a training step on each replica, without a GPU.

    python -m kerasmgpu.memory my_module:build --global_batch_size=256 \\
        --replicas=1,2,4,8 --shard=none,weights --device_memory=24GiB

traces the user's compiled model as `fit` does, runs nothing, and counts the
bytes of weights, slots, gradients and activations at the step's peak. The
files, from the inside out:

* `state_bytes`: bytes of variables, whole or sharded;
* `traced_step`: the variables of the step of the user's model;
* `value_sizes`: shapes that TensorFlow doesn't infer, and rounds of loops;
* `written_function`: nodes of a written function, with shapes;
* `ledger`: buffers with reference counts, and their peak;
* `kernels`: which kernels share or write into their inputs;
* `written_step`: the step, written for replicas that needn't exist;
* `executor_order`: the order in which TensorFlow runs nodes;
* `walk`, `loops`: go through the step in that order, and count;
* `step_memory`: the peak of a step on one replica;
* `building`: the peaks while a model is built and loaded;
* `first_parts`: the micro-batches that `"auto"` begins with;
* `counting`: the child process that does all of this;
* `memory_prediction`: starts it, and says what fits;
* `memory_report`: the table;
* `__main__`: the command.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kerasmgpu import _import_on_use

_import_on_use(__name__)


def memory(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None = None,
    replicas: Sequence[int] | int = (1, 2, 4, 8),
    *,
    global_batch_size: int | None = None,
    shard: str | Sequence[str] | None = ("none",),
    shard_over: int | None = None,
    offload: str | None = None,
    micro_batches: Sequence[int] | int | None = None,
    device_memory: str | None = None,
    recompute: str | None = None,
    replicas_per_worker: int | None = None,
    device_type: str = "GPU",
    timeout_seconds: float = 600,
    show: bool = True,
) -> dict[str, Any]:
    """Predicts the memory of a model's training step on each replica.

    Args:
        build: Function without arguments that returns a compiled
            `keras.Model`, or a pair `(model, data)`; or its name,
            `"my_module:build"` or `"path/to/file.py:build"`. It is called in
            another process, so it must be at the top level of a module.
        data: Function without arguments, or its name, that returns the data,
            as for `kerasmgpu.verify`; only the first batch is read. Default:
            the data that `build` returns, or the function `data` of its module.
        replicas: Integer or sequence of integers, numbers of replicas. A
            program that sets a `keras.distribution` is called once for each,
            with so many devices in `list_devices()`, which needn't exist.
        global_batch_size: Integer, rows of a global batch. Default: those of
            the first batch, or 32 for arrays.
        shard: One or several of `"none"`, `"optimizer"`, `"weights"` and
            `"embeddings"`; see `state_bytes`. With a `keras.distribution` the
            layouts say what is divided.
        shard_over: Integer, replicas over which `shard` divides a variable; see
            `MirroredStrategy`. Default: all.
        offload: String, what is in host memory where `shard`, or a layout,
            divides it: `"optimizer"`. Default: `"none"`.
        micro_batches: Integer or sequence of integers, parts in which a
            replica runs its rows. Default: the first of 1, 2, 4, … that fits
            `device_memory` or, if none does, that with the smallest total; 1
            without `device_memory`.
        device_memory: String, memory of a device such as `"24GiB"`, or a key
            of `hardware.data_sheets.DEVICES` such as `"A100-40GB"`. Default: none.
        recompute: String, what the backward pass computes again: `"none"`
            (default), `"elementwise"`, `"auto"`, which takes `device_memory` as
            the bound, or a bound such as `"20GiB"`; see `MirroredStrategy`.
        replicas_per_worker: Integer, replicas of each process of a job.
            Default: all are in one process.
        device_type: `"GPU"`, or `"CPU"`, where the replicas of a process share
            its memory and bytes are those of the process. Defaults to `"GPU"`.
        timeout_seconds: Number, how long building and tracing may take.
            Defaults to 600.
        show: Boolean, whether to print the table. Defaults to `True`.

    Returns:
        Dictionary: `"rows"`, one per setting, with the bytes of each part of a
        replica's memory and their `"total"`, the bytes at the peak while the
        model is `"built"` and `"loaded"` from a file, and `"loading_host"`, what
        that takes on the host of a worker; the bytes on the `"host"` at its peak
        in a step, and `"offload"`, what is kept there or `None`; whether all of
        it `"fits"` a device, and the `"mesh"` of a `keras.distribution` (sizes
        by axis) or `None`;
        `"verdict"`, a sentence, or `None` without `device_memory`.

    Raises:
        InputError: If the model can't be traced, or an argument is invalid.

    Example:

    ```python
    report = kerasmgpu.memory.memory(
        "my_module:build", replicas=(1, 4), device_memory="A100-40GB"
    )
    print(report["verdict"])
    ```
    """
    arguments = locals()
    from kerasmgpu.memory import memory_prediction

    return memory_prediction.run(**arguments)
