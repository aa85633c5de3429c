"""Finds this machine's GPUs and assigns them to workers."""

import dataclasses
import subprocess
from collections.abc import Mapping

from kerasmgpu.errors import InputError

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_SECONDS_TO_LIST = 60  # The first use may load the driver, which is slow.


@dataclasses.dataclass(frozen=True)
class Gpus:
    """The visible GPUs of this machine.

    Args:
        names: Tuple of strings, indices or UUIDs as in `CUDA_VISIBLE_DEVICES`.
            Empty without GPUs, or if they are disabled.
        source: String, the source of this list, for messages.
    """

    names: tuple[str, ...]
    source: str

    def describe(self) -> str:
        """Returns a sentence about the GPUs, without its full stop."""
        if not self.names:
            return f"There is no GPU here ({self.source})"
        return f"GPUs here: {len(self.names)} ({self.source})"

    def require(self, num_workers: int, devices_per_worker: int) -> None:
        """Raises if there are GPUs, but not enough for the workers.

        Without any GPU, any number of workers runs on the CPU.
        """
        needed = num_workers * devices_per_worker
        if self.names and needed > len(self.names):
            raise InputError(
                f"{num_workers} workers with {devices_per_worker} each need "
                f"{needed} GPUs. {self.describe()}. Ask for fewer workers, or "
                f"set {_VARIABLE}=-1 to run on the CPU"
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
        return {_VARIABLE: ",".join(names)} if names else {}


def visible(environ: Mapping[str, str]) -> Gpus:
    """Finds the visible GPUs, without creating a CUDA context.

    Args:
        environ: Mapping of environment variables. `CUDA_VISIBLE_DEVICES` is
            used if set; otherwise the output of `nvidia-smi -L`.

    Raises:
        InputError: If `nvidia-smi` exists but fails.
    """
    text = environ.get(_VARIABLE)
    if text is not None:
        return Gpus(_names(text), f"{_VARIABLE}={text}")
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"],
            capture_output=True,
            text=True,
            timeout=_SECONDS_TO_LIST,
            env=dict(environ),
        )
    except FileNotFoundError:
        return Gpus((), "no nvidia-smi")
    except subprocess.TimeoutExpired:
        raise InputError(
            f"nvidia-smi -L did not answer within {_SECONDS_TO_LIST} s: check "
            f"the driver, or set {_VARIABLE} (-1: CPU only)"
        ) from None
    if listing.returncode:
        said = " ".join((listing.stdout + listing.stderr).split())
        raise InputError(
            f"nvidia-smi -L failed with status {listing.returncode}: {said}. "
            f"Check the driver, or set {_VARIABLE} (-1: CPU only)"
        )
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return Gpus(tuple(map(str, range(count))), "nvidia-smi -L")


def _names(text: str) -> tuple[str, ...]:
    """Parses the list as CUDA does: names after a -1 are not visible."""
    names = []
    for name in text.split(","):
        name = name.strip()
        if not name or name.startswith("-") or name == "NoDevFiles":
            break
        names.append(name)
    return tuple(names)
