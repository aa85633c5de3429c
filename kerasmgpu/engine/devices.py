"""Chooses the replicas' devices: GPUs, or logical CPU devices instead."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from kerasmgpu.engine import xla_cache
from kerasmgpu.errors import (
    InputError,
    checked_integer,
    shown,
)
from kerasmgpu.hardware import cuda_devices, device_memory
from kerasmgpu.hardware.nvml import open_nvml

_ROOM = 64
"""Logical CPUs of a process that leaves room for them; they cost nothing."""
_asked_for: int | None = None
"""Those that were asked for, in such a process."""

_runs_as_gpus = False


def choose(
    num_replicas: int | None = None,
    devices: Sequence[str] | None = None,
    virtual_devices: int | None = None,
) -> list[str]:
    """Returns the names of the replicas' devices, one per replica.

    Args:
        num_replicas: Number of devices; the first ones are chosen. Default: all
            GPUs; with no GPU, all logical CPU devices (one unless more were
            made).
        devices: Names such as `["GPU:0", "GPU:2"]`, instead of `num_replicas`.
        virtual_devices: Number of logical CPU devices to make. Replicas then
            run on those, even if there are GPUs.

    Returns:
        List of device names such as `"GPU:0"`.

    Raises:
        InputError: For a number below 1 or above that of visible devices, an
            unknown device, or logical devices after TensorFlow has started.
    """
    num_replicas = _positive("num_replicas", num_replicas)
    virtual_devices = _positive("virtual_devices", virtual_devices)
    if devices is not None:
        _require_list(devices)
    if devices is not None and (num_replicas or virtual_devices):
        raise InputError(
            "Pass either `devices` or a number of replicas, not both. Received: "
            f"devices={list(devices)}, num_replicas={num_replicas}, "
            f"virtual_devices={virtual_devices}"
        )
    if virtual_devices:
        make_logical_cpus(virtual_devices)
        visible = _names("CPU")[:virtual_devices]
    else:
        grow_memory()
        visible = _names("GPU") or _names("CPU")[:_asked_for]
    if devices is not None:
        return _named(devices)
    if num_replicas is None:
        return visible
    if num_replicas > len(visible):
        raise InputError(
            f"Received: num_replicas={num_replicas}, but {describe(visible)}. "
            f"Ask for at most {len(visible)}, or pass "
            f"virtual_devices={num_replicas} (flag "
            f"--virtual_devices={num_replicas}) to run on logical CPU devices."
        )
    return visible[:num_replicas]


def make_logical_cpus(count: int) -> None:
    """Divides the CPU into `count` logical devices, for work without GPUs.

    They share the same cores: programs behave as on `count` GPUs but run no
    faster than on one device.

    Raises:
        InputError: If TensorFlow has started with fewer, or `count` is not an
            integer from 1 to 256: each device starts threads.

    Example:

    ```python
    make_logical_cpus(2)
    strategy = kerasmgpu.MirroredStrategy(["CPU:0", "CPU:1"])
    ```
    """
    global _asked_for
    count = checked_integer(count, "virtual_devices", 1, 256)
    xla_cache.prepare()
    if _asked_for is not None:
        _asked_for = max(_asked_for, count)
        if count <= _ROOM:
            return
    try:
        _divide_cpu(count)
    except RuntimeError:
        existing = len(tf.config.list_logical_devices("CPU"))
        if existing >= count:
            return
        raise InputError(
            f"Received: virtual_devices={count}, but TensorFlow has started "
            f"with {existing} CPU device(s). Call `kerasmgpu.strategy("
            f"virtual_devices={count})` before anything else uses TensorFlow; "
            "in a notebook, restart the kernel and run that cell first."
        ) from None


def leave_room() -> None:
    """Lets a program make logical CPUs after TensorFlow has started.

    For commands, which start it before they import the user's program. They
    count as one until `make_logical_cpus` asks for more. Does nothing if
    TensorFlow has started.
    """
    global _asked_for
    if _asked_for is None:
        xla_cache.prepare()
        with contextlib.suppress(RuntimeError):
            _divide_cpu(_ROOM)
            _asked_for = 1


def run_as_gpus() -> None:
    """Has this process's logical CPUs run the program that GPUs would get.

    Replicas share no memory then, are fed their rows each, and sum by
    TensorFlow's collectives. What stays as on CPUs: where kernels of CPUs fail
    for a share without rows, they don't get one.
    """
    global _runs_as_gpus
    _runs_as_gpus = True


def runs_as_gpus() -> bool:
    """Whether `run_as_gpus` was called."""
    return _runs_as_gpus


def _divide_cpu(count: int) -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )


def grow_memory() -> None:
    """Lets GPUs allocate memory as needed, instead of all of it at the start.

    Has no effect after TensorFlow has initialised the GPUs, and on a GPU that is
    divided into logical ones, whose sizes are fixed.
    """
    xla_cache.prepare()
    for gpu in tf.config.list_physical_devices("GPU"):
        if tf.config.get_logical_device_configuration(gpu):
            continue
        try:
            tf.config.experimental.set_memory_growth(gpu, True)
        except RuntimeError:
            return


def visible_gpus() -> dict[str, tf.config.PhysicalDevice]:
    """Returns the GPUs that this process may use, by UUID.

    Creates no CUDA context. GPUs of other makers have no UUID here, and are
    left out.
    """
    found = {}
    for gpu in tf.config.get_visible_devices("GPU"):
        for uuid in cuda_devices.uuids(int(gpu.name.rsplit(":", 1)[1]))[:1]:
            found[uuid] = gpu
    return found


def use_only(gpus: Sequence[tf.config.PhysicalDevice]) -> None:
    """Hides all other GPUs from this process, before TensorFlow starts."""
    tf.config.set_visible_devices(list(gpus), "GPU")


def num_logical(kind: str) -> int:
    """Returns the number of this process's logical devices of a kind.

    Does not start TensorFlow, so more logical devices can still be made.

    Args:
        kind: `"CPU"`, `"GPU"` or `"TPU"`.
    """
    return sum(
        len(tf.config.get_logical_device_configuration(device) or [None])
        for device in tf.config.get_visible_devices(kind)
    )


def physical_gpus() -> dict[str, int]:
    """Maps this process's logical GPUs to CUDA's numbers of physical ones.

    Returns:
        Dictionary such as `{"GPU:0": 2}`: logical devices are numbered in the
        order of the visible physical ones, each of which may be divided.
    """
    numbers = [
        int(gpu.name.rsplit(":", 1)[1])
        for gpu in tf.config.get_visible_devices("GPU")
        for _ in tf.config.get_logical_device_configuration(gpu) or [None]
    ]
    return {f"GPU:{index}": number for index, number in enumerate(numbers)}


def describe(names: Sequence[str]) -> str:
    """Returns text for messages: "2 GPUs are visible (GPU:0, GPU:1)"."""
    kind = "GPU" if names[0].startswith("GPU") else "CPU device"
    plural = "s are" if len(names) > 1 else " is"
    listed = f"{len(names)} {kind}{plural} visible ({', '.join(names)})"
    return listed if kind == "GPU" else f"no GPU and {listed}"


def _positive(name: str, number: int | None) -> int | None:
    return None if number is None else checked_integer(number, name, 1)


def _names(kind: str) -> list[str]:
    """Returns the names of this process's devices of a kind.

    In a job TensorFlow lists the other workers' devices too.
    """
    with tf.device("CPU:0"):
        here = tf.DeviceSpec.from_string(tf.constant(0).device)
    names = []
    for device in tf.config.list_logical_devices(kind):
        name = tf.DeviceSpec.from_string(device.name)
        if name.task is None or name.task == here.task:
            names.append(f"{name.device_type}:{name.device_index}")
    return names


def _named(devices: Sequence[str]) -> list[str]:
    """Returns short names; raises unless they are known and distinct."""
    _require_list(devices)
    names = [_known(device) for device in devices]
    if len(set(names)) < len(names):
        raise InputError(
            "Every replica needs a device of its own. Received: "
            f"devices={list(devices)}"
        )
    return names


def _require_list(devices: Any) -> None:
    is_list = isinstance(devices, Iterable) and not isinstance(devices, str)
    if is_list and list(devices):
        return
    hint = ""
    if isinstance(devices, int):
        hint = f"; kerasmgpu.strategy(num_replicas={devices}) takes a number"
    raise InputError(
        'devices must be a list of names such as ["GPU:0", "GPU:1"]. '
        f"Received: devices={shown(devices)}{hint}"
    )


def _known(device: str) -> str:
    visible = _names("GPU") + _names("CPU")
    name = str(device).strip().rsplit("device:", 1)[-1].lstrip("/").upper()
    if name in visible:
        return name
    hint = ""
    if name.startswith("CPU"):
        hint = (
            ". kerasmgpu.placement.make_logical_cpus(8) makes eight CPUs; call"
        )
        hint += " it before anything else uses TensorFlow."
    raise InputError(
        f"Received: device {device!r}; visible devices: {', '.join(visible)}"
        f"{hint}"
    )


def smallest_memory(names: Iterable[str]) -> int | None:
    """Returns bytes for tensors on the smallest device; `None` if unknown.

    GPUs of a machine may differ; TensorFlow numbers the fastest first.

    Args:
        names: Iterable of strings, see `memory_of`.
    """
    known = [size for size in map(memory_of, names) if size]
    return min(known, default=None)


def memory_of(name: str) -> int | None:
    """Returns bytes for tensors on a device of this process.

    Args:
        name: String, the device's full name in TensorFlow.

    Returns:
        Integer; `None` if unknown.
    """
    device = tf.DeviceSpec.from_string(name)
    if device.device_type == "CPU":
        # Only with TensorFlow's GPU allocator on the CPU, which is off by
        # default, a CPU has a limit.
        if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() != "true":
            return None
        megabytes = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB")
        return int(megabytes) << 20 if megabytes else None
    number = device.device_index or 0
    devices = tf.config.get_visible_devices("GPU")
    if number >= len(devices):
        return None  # One of several logical devices of a GPU.
    logical = tf.config.get_logical_device_configuration(devices[number])
    if logical and logical[0].memory_limit:
        return int(logical[0].memory_limit) << 20
    nvml, _ = open_nvml()
    if nvml is None:
        return None
    gpu = nvml.of_cuda_device(int(devices[number].name.rpartition(":")[2]))
    total = gpu.sample().get("memory_total_bytes") if gpu else None
    nvml.close()
    return device_memory.usable(total) if total else None
