"""The report of an examination: tables, a text to paste, and JSON."""

import getpass
import io
import ipaddress
import json
import os
import pathlib
import re
import socket
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from kerasmgpu.commands import reports
from kerasmgpu.commands.fitted_table import FittedTable
from kerasmgpu.doctor.collective_checks import bandwidths
from kerasmgpu.doctor.findings import NOTE, PROBLEM

_MARKS = {
    "ok": "[green]ok[/]",
    NOTE: "[yellow]note[/]",
    PROBLEM: "[red]problem[/]",
}
_COLUMNS = 100  # Of the text to paste.

_ADDRESS = re.compile(r"(?<![\w.:])(?:[\d.]{7,15}|[\da-fA-F:.]{3,45})(?![\w.])")
_TOKEN = re.compile(r"(?<!\w)(?:[0-9a-fA-F]{32,}|[A-Za-z]+_[0-9A-Za-z]{30,})")
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HOST_WITH_PORT = re.compile(r"\"([\w.-]+):(\d+)\"")


def print_report(report: dict[str, Any], console: Console) -> None:
    """Prints the findings, the collectives' and the trials' tables."""
    reports.say(console, report["devices"])
    console.print(_findings(report["findings"]))
    if report["collectives"]:
        console.print(_collectives(report))
    trials = {k: v for k, v in report["trials"].items() if "error" not in v}
    if trials:
        console.print(_trials(trials))
    reports.say(console, report["verdict"])


def to_text(report: dict[str, Any]) -> str:
    """Returns the report as text without names of people and machines."""
    # Before lines are broken, in the middle of a name perhaps.
    findings = [
        {key: anonymous(one[key], report["hosts"]) for key in one}
        for one in report["findings"]
    ]
    file = io.StringIO()
    console = Console(file=file, width=_COLUMNS)
    print_report({**report, "findings": findings}, console)
    return file.getvalue()


def to_json(report: dict[str, Any]) -> str:
    """Returns the report as JSON; its keys are stable."""
    return json.dumps(report, indent=2, ensure_ascii=False, default=str)


def anonymous(text: str, hosts: Iterable[str] = ()) -> str:
    """Returns text without users, hosts, addresses, folders, UUIDs and tokens.

    Args:
        hosts: Iterable of further names of hosts.

    Example:

    >>> anonymous("10.0.0.7 answered")
    '<address> answered'
    """
    text = _UUID.sub(r"<\1>", _TOKEN.sub("<token>", text))
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


def _findings(findings: list[dict[str, str]]) -> FittedTable:
    table = reports.table("kerasmgpu doctor", "status", "subject", "finding")
    for one in findings:
        text = Text(one["text"])  # Lines of a log are no markup.
        if one["advice"]:
            text.append(f"\n→ {one['advice']}", "italic")
        table.add_row(_MARKS[one["status"]], one["subject"], text)
    return table


def _collectives(report: dict[str, Any]) -> FittedTable:
    table = reports.table(
        f"Collectives of {report['replicas']} replicas, by {report['engine']}",
        "collective",
        right=("size", "time", "algorithm", "bus"),
        caption="median of 5; bus bandwidth as nccl-tests defines it",
    )
    for one in report["collectives"]:
        rates = bandwidths(
            one["collective"], one["bytes"], one["seconds"], report["replicas"]
        )
        table.add_row(
            one["collective"],
            f"{one['bytes'] / 2**20:g} MiB",
            f"{one['seconds'] * 1e3:.3g} ms",
            *(f"{rate / 1e9:.3g} GB/s" for rate in rates),
        )
    return table


def _trials(trials: dict[str, dict[str, Any]]) -> FittedTable:
    table = reports.table(
        "Training on one device, and on all",
        "model",
        right=("difference", "examples/s", "first step", "peak memory"),
        caption="small models: figures tell whether something is odd, not what "
        "more devices gain",
    )
    for name, facts in trials.items():
        pairs = [facts["one"], facts["many"]]
        table.add_row(
            name,
            f"{facts['distance']:.1e}",
            _cells(pairs, "examples_per_second", "{:,.0f}"),
            _cells(pairs, "first_step_seconds", "{:.2g} s"),
            _cells(pairs, "peak_bytes", "{:,.0f}", 2**20) + " MiB",
        )
    return table


def _cells(
    pairs: list[dict[str, Any]], key: str, style: str, unit: float = 1
) -> str:
    return " → ".join(
        style.format(one[key] / unit) if key in one else "–" for one in pairs
    )
