"""Finds free ports for the workers of this machine."""

import pathlib
import random
import socket

_LOWEST = 20000
_RANGE_FILE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")


def free(count: int, first: int | None = None) -> list[int]:
    """Finds free ports.

    TensorFlow opens its port seconds later, and can't take over an open socket.
    Binding to port 0 would give an ephemeral port, which a connection may take
    in the meantime; so these are random ports below the ephemeral range. Another
    launcher may still draw the same port in those seconds: then a worker fails
    at its start, and a restart draws new ports.

    Args:
        first: Integer, first of `count` consecutive ports to return instead,
            unchecked, for machines with a firewall between them.

    Raises:
        OSError: If there are not enough free ports.
    """
    if first is not None:
        return list(range(first, first + count))
    candidates = range(_LOWEST, max(_lowest_of_kernel(), _LOWEST + 1000))
    ports = []
    # `random`'s own generator repeats in every notebook that sets a seed.
    numbers = random.SystemRandom()
    for port in numbers.sample(candidates, len(candidates)):
        if is_free(port):
            ports.append(port)
            if len(ports) == count:
                return ports
    raise OSError(
        f"{count} free ports are needed, {len(ports)} are there of "
        f"{candidates.start} to {candidates.stop - 1}"
    )


def is_free(port: int) -> bool:
    """Whether a server can bind that port now."""
    with socket.socket() as candidate:
        try:
            candidate.bind(("", port))
        except OSError:
            return False
        return True


def _lowest_of_kernel() -> int:
    """Returns the kernel's lowest ephemeral port."""
    try:
        return int(_RANGE_FILE.read_text("ascii").split()[0])
    except FileNotFoundError:
        return 49152  # Systems other than Linux: RFC 6335, section 6.
