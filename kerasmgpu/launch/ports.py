"""Ports on which the workers of this machine can listen."""

import pathlib
import random
import socket

_LOWEST = 20000
_RANGE_FILE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")


def free(count, first=None):
    """Finds free ports.

    TensorFlow opens its port seconds later, and can't be handed an open one.
    So that nobody takes it meanwhile, ports are not those that the kernel
    hands out to connections, as binding to port 0 would give, but random ones
    below. What remains is that another launcher draws the same ones in those
    seconds; a worker then fails at its start and a restart draws anew.

    Args:
        count: Integer, how many.
        first: Integer, the first of consecutive ports to take instead, free
            or not, for machines with a firewall between them.

    Returns:
        List of integers.

    Raises:
        OSError: If there are not so many free ones.
    """
    if first is not None:
        return list(range(first, first + count))
    candidates = range(_LOWEST, max(_lowest_of_kernel(), _LOWEST + 1000))
    ports = []
    # Python's own numbers are the same in every notebook that sets a seed.
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


def is_free(port):
    """Whether a server could be started on that port now."""
    with socket.socket() as candidate:
        try:
            candidate.bind(("", port))
        except OSError:
            return False
        return True


def _lowest_of_kernel():
    """The lowest port that the kernel gives to a connection."""
    try:
        return int(_RANGE_FILE.read_text("ascii").split()[0])
    except FileNotFoundError:
        return 49152  # The others follow RFC 6335, section 6.
