"""A finding, and text without names of people and machines."""

import dataclasses
import getpass
import ipaddress
import os
import pathlib
import re
import socket
from collections.abc import Iterable

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        key: String, stable name of the finding, as in `docs/doctor.md`.
        status: `"ok"`, `"note"` or `"problem"`.
        subject: String, the check's group: "GPUs", "versions", ….
        text: String, what is so, in one line.
        advice: String, what to do; empty if there is nothing to do.
    """

    key: str
    status: str
    subject: str
    text: str
    advice: str = ""


def fine(key: str, subject: str, text: str) -> Finding:
    """Returns a finding that needs nothing done."""
    return Finding(key, OK, subject, text)


_ADDRESS = re.compile(r"(?<![\w.:])(?:[\d.]{7,15}|[\da-fA-F:.]{3,45})(?![\w.])")
_TOKEN = re.compile(r"(?<!\w)(?:[0-9a-fA-F]{32,}|[A-Za-z]+_[0-9A-Za-z]{30,})")
_HOST_WITH_PORT = re.compile(r"\"([\w.-]+):(\d+)\"")


def anonymous(text: str, hosts: Iterable[str] = ()) -> str:
    """Returns text without users, hosts, addresses, home folders and tokens.

    Args:
        text: String.
        hosts: Iterable of further names of hosts.

    Example:

    >>> anonymous("10.0.0.7 answered")
    '<address> answered'
    """
    text = _TOKEN.sub("<token>", text)
    text = text.replace(str(pathlib.Path.home()), "~")
    text = re.sub(r"/(home|Users)/[^/\s:\"']+", "~", text)
    text = _ADDRESS.sub(_without_address, text)
    text = _HOST_WITH_PORT.sub(r'"<host>:\2"', text)
    name = socket.gethostname()
    for known in sorted({*hosts, socket.getfqdn(), name}, key=len)[::-1]:
        text = _without(text, known, "<host>")
    for known in {_user(), os.environ.get("USER", "")}:
        text = _without(text, known, "<user>")
    return text


def _without_address(match: re.Match[str]) -> str:
    try:
        ipaddress.ip_address(match[0])
    except ValueError:
        return match[0]
    return "<address>"


def _without(text: str, name: str, instead: str) -> str:
    if len(name) < 2 or name in ("localhost", "root"):  # These tell nothing.
        return text
    return re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", instead, text)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A user number without a name.
        return ""
