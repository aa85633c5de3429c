"""The GPUs of this machine, and which worker sees which of them."""

import dataclasses
import subprocess

from kerasmgpu.errors import InputError

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_SECONDS_TO_LIST = 60  # A driver that loads takes its time.


@dataclasses.dataclass(frozen=True)
class Devices:
    """What CUDA can see here.

    Args:
        names: Tuple of strings, as `CUDA_VISIBLE_DEVICES` has them: numbers or
            UUIDs. Empty where there is no GPU, or none is wanted.
        source: String, where that is known from.
    """

    names: tuple
    source: str

    def describe(self):
        """A sentence without its full stop."""
        if not self.names:
            return f"There is no GPU here ({self.source})"
        return f"GPUs here: {len(self.names)} ({self.source})"

    def require(self, num_workers, devices_per_worker):
        """Refuses more workers than there are GPUs for.

        Without any GPU workers run on the CPU, as many as are asked for.

        Raises:
            InputError: If there are some, but not enough.
        """
        needed = num_workers * devices_per_worker
        if self.names and needed > len(self.names):
            raise InputError(
                f"{num_workers} workers with {devices_per_worker} each need "
                f"{needed} GPUs. {self.describe()}. Ask for fewer workers, or "
                f"set {_VARIABLE}=-1 to run on the CPU"
            )

    def of_worker(self, place, devices_per_worker):
        """The devices of one worker.

        Args:
            place: Integer, the worker's number on this machine, from 0.
            devices_per_worker: Integer.

        Returns:
            Tuple of strings; empty without GPUs.
        """
        first = place * devices_per_worker
        return self.names[first : first + devices_per_worker]

    def environment(self, place, devices_per_worker):
        """Dictionary of the variables that pin a worker to its devices."""
        names = self.of_worker(place, devices_per_worker)
        return {_VARIABLE: ",".join(names)} if names else {}


def visible(environ):
    """Finds the GPUs, without a CUDA context.

    Args:
        environ: Mapping of environment variables. `CUDA_VISIBLE_DEVICES`
            counts where it is set; else `nvidia-smi -L` is asked.

    Returns:
        `Devices`.

    Raises:
        InputError: If `nvidia-smi` is there and fails.
    """
    text = environ.get(_VARIABLE)
    if text is not None:
        return Devices(_names(text), f"{_VARIABLE}={text}")
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"],
            capture_output=True,
            text=True,
            timeout=_SECONDS_TO_LIST,
            env=dict(environ),
        )
    except FileNotFoundError:
        return Devices((), "no nvidia-smi")
    except subprocess.TimeoutExpired:
        raise InputError(
            f"nvidia-smi -L gave no answer in {_SECONDS_TO_LIST} s: see to "
            f"the driver, or set {_VARIABLE} (-1: CPU only)"
        ) from None
    if listing.returncode:
        said = " ".join((listing.stdout + listing.stderr).split())
        raise InputError(
            f"nvidia-smi -L failed with status {listing.returncode}: {said}. "
            f"See to the driver, or set {_VARIABLE} (-1: CPU only)"
        )
    count = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return Devices(tuple(map(str, range(count))), "nvidia-smi -L")


def _names(text):
    """The names as CUDA reads them: what follows a -1 is not visible."""
    names = []
    for name in text.split(","):
        name = name.strip()
        if not name or name.startswith("-") or name == "NoDevFiles":
            break
        names.append(name)
    return tuple(names)
