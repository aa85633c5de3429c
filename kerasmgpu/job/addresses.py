"""Parses hosts and addresses; opens server sockets. No TensorFlow."""

import collections
import dataclasses
import re
import socket

from kerasmgpu.errors import InputError

# A name or IPv4 address, or an IPv6 address in brackets.
_HOST = r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\],/]+))"


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine of a job.

    Args:
        name: String, host name or address, IPv6 without brackets.
        num_workers: Integer of at least 1, number of workers on it.
    """

    name: str
    num_workers: int

    def address(self, port: int | str) -> str:
        """String `"host:port"`, with IPv6 addresses in brackets."""
        return join_address(self.name, port)


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Parses a job's machines and their numbers of workers.

    Args:
        text: String such as `"a:4,b:4"` or `"[fd00::1]:8,[fd00::2]:8"`.

    Returns:
        Tuple of `Host`, in the order of their ranks.

    Raises:
        InputError: If it can't be parsed, a count is not above 0, or a machine
            is named twice.

    Example:

    ```python
    parse_hosts("a:4,b:2")  # (Host("a", 4), Host("b", 2))
    ```
    """
    hosts = []
    for item in text.split(","):
        match = re.fullmatch(_HOST + r":([0-9]+)", item.strip())
        if not match or int(match[3]) < 1:
            raise InputError(
                "Expected machines with their numbers of workers, such as "
                f"a:4,b:4 or [fd00::1]:4. Received: {item.strip()!r}"
                + (f" in {text!r}" if "," in text else "")
            )
        hosts.append(Host(match[1] or match[2], int(match[3])))
    counts = collections.Counter(host.name for host in hosts)
    doubled = sorted(name for name, count in counts.items() if count > 1)
    if doubled:
        raise InputError(
            f"Name every machine once. Received twice: {', '.join(doubled)}"
        )
    return tuple(hosts)


def split_address(address: object) -> tuple[str, int]:
    """Splits `"host:port"` or `"[IPv6]:port"` into name and number.

    Raises:
        InputError: If it is no address, or the port is not 1 to 65535.
    """
    text = address if isinstance(address, str) else ""
    match = re.fullmatch(_HOST + r":([0-9]{1,5})", text)
    if not match or not 1 <= int(match[3]) <= 65535:
        raise InputError(
            "A worker's address must be host:port with a port of 1 to 65535, "
            f"such as a:29500 or [fd00::1]:29500. Received: {address!r}"
        )
    return match[1] or match[2], int(match[3])


def join_address(name: str, port: int | str) -> str:
    """Inverse of `split_address`: IPv6 addresses get brackets."""
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def listen(
    port: int, backlog: int | None = None, loopback: bool = False
) -> socket.socket:
    """Returns a server socket that listens on all addresses, IPv4 and IPv6.

    Args:
        port: Integer, 0 for any free one.
        backlog: Integer, maximum of pending connections. Default: the system's.
        loopback: Boolean, whether to listen on 127.0.0.1 only, which other
            machines don't reach.

    Raises:
        OSError: If the port can't be bound.
    """
    if loopback:
        return socket.create_server(("127.0.0.1", port), backlog=backlog)
    both = socket.has_dualstack_ipv6()
    return socket.create_server(
        ("", port),
        family=socket.AF_INET6 if both else socket.AF_INET,
        backlog=backlog,
        dualstack_ipv6=both,
    )
