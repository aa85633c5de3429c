"""Finds this machine's GPUs and assigns them to workers."""

import dataclasses
import pathlib
import re
import subprocess
from collections.abc import Mapping

from kerasmgpu.errors import InputError, one_line
from kerasmgpu.hardware.cuda_devices import VARIABLE, named

_GPU = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_UNREACHABLE = "Unable to determine the device handle"
"""What `nvidia-smi` says of a GPU that fell off its bus."""
_DEVICES = pathlib.Path("/dev")
_SECONDS_TO_LIST = 60  # The first use may load the driver, which is slow.


@dataclasses.dataclass(frozen=True)
class Gpus:
    """The visible GPUs of this machine.

    Args:
        names: Tuple of strings, indices or UUIDs as in `CUDA_VISIBLE_DEVICES`.
            Empty without GPUs, or if they are disabled.
        source: String, the source of this list, for messages.
        divided: Tuple of strings, the `names` that have MIG on.
        unlisted: Tuple of strings, files of GPUs that nothing lists here, as
            in a container without the driver's programs.
    """

    names: tuple[str, ...]
    source: str
    divided: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    def describe(self) -> str:
        """Returns a sentence about the GPUs, without its full stop."""
        if self.unlisted:
            return (
                f"{self.source} to list {', '.join(self.unlisted)} (name GPUs "
                f"by {VARIABLE})"
            )
        if not self.names:
            return f"There is no GPU here ({self.source})"
        return f"GPUs here: {len(self.names)} ({self.source})"

    def note(self) -> str:
        """Returns a sentence about GPUs with MIG, without its full stop."""
        if not self.divided:
            return ""
        many = len(self.divided) > 1
        return (
            f"MIG is on for GPU{'s' if many else ''} {', '.join(self.divided)}: "
            "a worker uses one part of its GPU (nvidia-smi -mig 0 makes it "
            "whole)"
        )

    def require(self, num_workers: int, devices_per_worker: int) -> None:
        """Raises if there are GPUs, but not enough for the workers.

        Without any GPU, any number of workers runs on the CPU.
        """
        needed = num_workers * devices_per_worker
        if self.names and needed > len(self.names):
            raise InputError(
                f"{num_workers} workers with {devices_per_worker} each need "
                f"{needed} GPUs. {self.describe()}. Ask for fewer workers, or "
                f"set {VARIABLE}=-1 to run on the CPU"
            )

    def of_worker(self, place: int, devices_per_worker: int) -> tuple[str, ...]:
        """Returns the devices of one worker; none without GPUs.

        Args:
            place: Integer, the worker's 0-based index on this machine.
        """
        first = place * devices_per_worker
        return self.names[first : first + devices_per_worker]

    def environment(
        self, place: int, devices_per_worker: int
    ) -> dict[str, str]:
        """Returns the environment variables that pin a worker to its GPUs."""
        names = self.of_worker(place, devices_per_worker)
        return {VARIABLE: ",".join(names)} if names else {}


def lost(devices: Gpus, environ: Mapping[str, str]) -> str:
    """Returns a line if a GPU can't be reached any more; else empty.

    For jobs that failed: a worker of a lost GPU ends with an error of CUDA.

    Args:
        devices: `Gpus`, those that the job began with.
        environ: See `visible`.
    """
    if not devices.names:
        return ""
    try:
        visible({k: v for k, v in environ.items() if k != VARIABLE})
    except InputError as error:
        return str(error)
    return ""


def visible(environ: Mapping[str, str]) -> Gpus:
    """Finds the visible GPUs, without creating a CUDA context.

    Args:
        environ: Mapping of environment variables. `CUDA_VISIBLE_DEVICES` is
            used if set; otherwise the output of `nvidia-smi -L`.

    Raises:
        InputError: If `nvidia-smi` exists but fails.
    """
    text = environ.get(VARIABLE)
    if text is not None:
        return Gpus(named(text), f"{VARIABLE}={text}")
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"],
            capture_output=True,
            text=True,
            timeout=_SECONDS_TO_LIST,
            env=dict(environ),
        )
    except FileNotFoundError:
        files = sorted(_DEVICES.glob("nvidia[0-9]*"))
        return Gpus((), "no nvidia-smi", unlisted=tuple(map(str, files)))
    except subprocess.TimeoutExpired:
        raise InputError(
            f"nvidia-smi -L did not answer within {_SECONDS_TO_LIST} s: check "
            f"the driver, or set {VARIABLE} (-1: CPU only)"
        ) from None
    lines = (listing.stdout + listing.stderr).splitlines()
    uuids, divided, said = [], [], []
    for line in lines:
        if found := _GPU.match(line):
            uuids.append(found[1])
        elif line.startswith("  MIG "):
            divided.append(str(len(uuids) - 1))
        elif line.strip():
            said.append(one_line(line))
    if uuids and any(line.startswith(_UNREACHABLE) for line in said):
        raise InputError(
            f"nvidia-smi -L can't reach a GPU: {' '.join(said)}. Restart the "
            "machine; until then, train on the others with "
            f"{VARIABLE}={','.join(uuids)}"
        )
    if listing.returncode:
        raise InputError(
            f"nvidia-smi -L failed with status {listing.returncode}: "
            f"{' '.join(said)}. Check the driver, or set {VARIABLE} (-1: CPU "
            "only)"
        )
    names = tuple(map(str, range(len(uuids))))
    return Gpus(names, "nvidia-smi -L", tuple(dict.fromkeys(divided)))
