"""Number and time of copies between devices, from a TensorFlow profile."""

import collections
import dataclasses
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from kerasmgpu.placement import xplane

# CUDA's name of a copy from one GPU to another. GPUs without peer access copy
# through host memory: two copies, to the host and back, which are not counted.
_GPU_COPIES = ("MemcpyP2P",)

# An operation of a graph on the CPU: "name in the graph:type". The types in
# `_CALLS` contain other operations, which have their own events.
_OPERATION = re.compile(r"[^\s:]+:(\w+)")
_CALLS = {"PartitionedCall", "StatefulPartitionedCall", "While", "If", "Case"}
_SEND = "_Send"
_COPY = "copy between devices"


@dataclasses.dataclass(frozen=True)
class Operation:
    """All runs of one kind of operation in a profile.

    Args:
        name: Kernel or kind of copy on GPUs, type of operation on the CPU.
        seconds: Their total time.
        calls: Number of runs.
        share: `seconds` divided by those of all operations, 0 to 1.
    """

    name: str
    seconds: float
    calls: int
    share: float


@dataclasses.dataclass(frozen=True)
class Copies:
    """Operations of a profile, with all copies between devices as one of them.

    Args:
        copies: `Operation` that sums up all copies between devices.
        operations: List of `Operation`s including `copies`, longest first.
        on_gpus: Whether the times are those of GPUs. Logical CPU devices share
            their memory: a copy between them passes a pointer, so that only
            the number of copies is meaningful, not their time.
    """

    copies: Operation
    operations: list[Operation]
    on_gpus: bool


def measure_copies(
    function: Callable[[], Any], folder: str | os.PathLike[str] | None = None
) -> Copies:
    """Runs a function under TensorFlow's profiler and reads the profile.

    Trace and warm up the function before, so that the profile has only steps.
    The profiler keeps about a million events; a few dozen steps are enough.

    Args:
        function: Function without arguments, such as a `fit` of an epoch.
        folder: Folder to keep the profile in, for TensorBoard. Defaults to
            `None`: the profile is deleted.

    Returns:
        A `Copies`.

    Example:

    ```python
    measured = measure_copies(lambda: model.fit(dataset.take(20)))
    print(f"{measured.copies.calls} copies, {measured.copies.share:.1%}")
    ```
    """
    with tempfile.TemporaryDirectory() as temporary:
        target = str(folder or temporary)
        with tf.profiler.experimental.Profile(target):
            function()
        return summarise(xplane.read(target))


def summarise(events: Iterable[xplane.Event]) -> Copies:
    """Sums up the events of a profile.

    If the profile has GPUs, only their kernels and copies are counted, and
    copies between devices are those from GPU to GPU. Otherwise operations of
    TensorFlow's graphs are counted, and sends from one device to another.

    Args:
        events: Iterable of `xplane.Event`s.

    Returns:
        A `Copies`.
    """
    on_gpu = _Sums()
    on_cpu = _Sums()
    for event in events:
        if event.plane.startswith("/device:GPU"):
            # The plane's other lines show the same events, grouped otherwise.
            if event.line.startswith("Stream"):
                is_copy = event.name in _GPU_COPIES
                on_gpu.add(_COPY if is_copy else event.name, event.seconds)
        elif match := _OPERATION.fullmatch(event.name):
            kind = match[1]
            if kind == _SEND and _is_between_devices(event):
                kind = _COPY
            if kind not in _CALLS:
                on_cpu.add(kind, event.seconds)
    chosen = on_gpu if on_gpu.calls else on_cpu
    operations = chosen.operations()
    (copies,) = [o for o in operations if o.name == _COPY]
    return Copies(copies, operations, on_gpus=bool(on_gpu.calls))


def _is_between_devices(event: xplane.Event) -> bool:
    """Whether a send is to another device.

    Its key is "sending device;incarnation;receiving device;tensor;frame".
    """
    parts = event.details.get("key", "").split(";")
    return len(parts) > 2 and parts[0] != parts[2]


class _Sums:
    """Seconds and calls by kind of operation, with an entry for copies."""

    def __init__(self) -> None:
        self.seconds = collections.defaultdict(float, {_COPY: 0.0})
        self.calls: collections.Counter[str] = collections.Counter()

    def add(self, kind: str, seconds: float) -> None:
        self.seconds[kind] += seconds
        self.calls[kind] += 1

    def operations(self) -> list[Operation]:
        total = sum(self.seconds.values())
        operations = [
            Operation(
                kind,
                seconds,
                self.calls[kind],
                seconds / total if total else 0.0,
            )
            for kind, seconds in self.seconds.items()
        ]
        return sorted(operations, key=lambda o: o.seconds, reverse=True)
