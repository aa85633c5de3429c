"""A machine with GPUs: what NVML, `nvidia-smi` and TensorFlow tell of it.

Answers are of `recorded_nvml`, under the real nvidia-ml-py.
"""

import ctypes
import dataclasses

import pynvml

from tests.hardware.recorded_nvml import Error, idle

DENIED = Error(pynvml.NVML_ERROR_NO_PERMISSION)
NODE, SWITCHES = 40, 20
_SAME_SWITCH, _HOST_BRIDGE, _SYSTEM = 10, 30, 50


@dataclasses.dataclass
class Machine:
    """A machine with GPUs.

    Args:
        gpus: List of answers, see `recorded_nvml.Library`.
        seen: List of TensorFlow's GPUs, as indices of `gpus`. Default: all that
            have answers.
        capability: Pair of integers, their compute capability.
        system: Dictionary of answers without a GPU.
        environment: Dictionary of environment variables.
        log: List of lines of TensorFlow's log on GPU libraries.
        build: Dictionary of changes of TensorFlow's build.
        libraries: List of CUDA's libraries that TensorFlow has loaded.
        seconds: Float, of an all-reduce of 256 MiB.
        listing: String, what `nvidia-smi -L` prints. Default: `gpus`.
        status: Integer, its exit status.
        workers: Integer, of a job with one GPU each; 1 for no job.
    """

    gpus: list
    seen: list | None = None
    capability: tuple = (9, 0)
    system: dict = dataclasses.field(default_factory=dict)
    environment: dict = dataclasses.field(default_factory=dict)
    log: tuple = ()
    build: dict = dataclasses.field(default_factory=dict)
    libraries: tuple = ("libcublas.so.12", "libcudart.so.12", "libcudnn.so.9")
    seconds: float = 0.0012
    listing: str | None = None
    status: int = 0
    workers: int = 1

    def __post_init__(self):
        if self.seen is None:
            answering = enumerate(self.gpus)
            self.seen = [n for n, gpu in answering if isinstance(gpu, dict)]
        if self.listing is None:
            lines = [listed(*one) for one in enumerate(self.gpus)]
            self.listing = "".join(f"{line}\n" for line in lines if line)
            if "Unable" in self.listing:
                self.status = 255


def listed(number, gpu):
    """The line of `nvidia-smi -L` on a GPU; empty for one that is not ours."""
    if gpu == DENIED:
        return ""
    if isinstance(gpu, Error):
        return (
            "Unable to determine the device handle for GPU "
            f"0000:{number + 1:02X}:00.0: {pynvml.NVMLError(gpu)}"
        )
    name, own = gpu["nvmlDeviceGetName"], gpu["nvmlDeviceGetUUID"]
    return f"GPU {number}: {name} (UUID: {own})"


def over_pcie(number, other):
    """The level at which two of eight GPUs meet.

    Two share a switch, four a NUMA node: 0–1, 2–3 by one switch; 0–2 by several
    of one host bridge; the two halves across the sockets.
    """
    if number // 4 != other // 4:
        return _SYSTEM
    return _SAME_SWITCH if number // 2 == other // 2 else _HOST_BRIDGE


def levels(number, level=over_pcie):
    """The answer of GPU `number` to how it meets another one."""

    def answer(handle):
        other = ctypes.cast(handle, ctypes.c_void_p).value - 1
        return level(number, other)

    return {"nvmlDeviceGetTopologyCommonAncestor": answer}


def eight(make=idle, **changes):
    """Eight GPUs of `recorded_nvml`, PCI bus 1 to 8."""
    return [make(number + 1, **levels(number) | changes) for number in range(8)]
