"""Parses hosts and addresses; opens server sockets. No TensorFlow."""

import collections
import dataclasses
import ipaddress
import re
import socket

from kerasmgpu.errors import InputError

# A name or IPv4 address, or an IPv6 address in brackets.
_HOST = r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\],/]+))"

_LOOPBACK_NAMES = (
    "localhost",
    "localhost.localdomain",
    "localhost4",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
)
"""As distributions' `/etc/hosts` have them."""


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
            is named twice: in another case, with a dot at the end, or by
            several names of the loopback interface. (127.0.0.2 is another
            machine, for tries on one.)

    Example:

    ```python
    parse_hosts("a:4,b:2")  # (Host("a", 4), Host("b", 2))
    ```
    """
    items = [item.strip() for item in text.split(",")]
    if len(items) > 1 and not items[-1]:
        raise InputError(
            f"--hosts ends with a comma: leave it out. Received: {text!r}"
        )
    hosts = []
    for item in items:
        match = re.fullmatch(_HOST + r":([0-9]+)", item)
        if not match or int(match[3]) < 1:
            raise InputError(
                "Expected machines with their numbers of workers, such as "
                f"a:4,b:4 or [fd00::1]:4. Received: {item!r}"
                + (f" in {text!r}" if "," in text else "")
            )
        name = match[1] or match[2]
        if "@" in name:
            raise InputError(
                "Name machines without a user: each is started by whoever "
                f"types the command there. Received: {name!r}; expected "
                f"{name.rpartition('@')[2]!r}"
            )
        hosts.append(Host(name, int(match[3])))
    names = collections.defaultdict(list)
    for host in hosts:
        names[_canonical(host.name)].append(host.name)
    doubled = sorted(found for found in names.values() if len(found) > 1)
    if doubled:
        told = "; ".join(
            " and ".join(dict.fromkeys(found)) for found in doubled
        )
        raise InputError(f"Name every machine once. Received twice: {told}")
    return tuple(hosts)


def _canonical(name: str) -> str:
    """Returns one name for all spellings of a machine's that need no DNS."""
    name = name.lower().removesuffix(".")
    address = _address(name.partition("%")[0])
    if address is None:
        return "127.0.0.1" if is_loopback(name) else name
    mapped = getattr(address, "ipv4_mapped", None)
    shown = str(mapped or address)
    return "127.0.0.1" if shown == "::1" else shown


def is_loopback(host: str) -> bool:
    """Whether a name or address is the loopback interface's."""
    name = host.lower().removesuffix(".")
    if name in _LOOPBACK_NAMES or name.endswith(".localhost"):
        return True
    address = _address(name)
    mapped = getattr(address, "ipv4_mapped", None)
    return address is not None and (mapped or address).is_loopback


def _address(
    text: str,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


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
