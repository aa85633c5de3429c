"""The table that `--dry_run` prints: workers, machines and devices."""

import shlex
from collections.abc import Iterator

from kerasmgpu.commands import reports
from kerasmgpu.launch.settings import Settings


def print_plan(settings: Settings) -> None:
    """Prints the workers of a job with their machines and devices."""
    count = sum(host.num_workers for host in settings.hosts)
    table = reports.table(
        f"workers: {count}", "worker", "rank", "address", "devices"
    )
    for row in rows(settings):
        table.add_row(*row)
    console = reports.console()
    console.print(table)
    command = shlex.join(settings.command)
    if settings.note:
        reports.say(console, settings.note)
    reports.say(console, f"Each runs: {command}")
    if len(settings.hosts) > 1:
        reports.say(console, f"Rank 0 listens at {settings.controller}")


def rows(settings: Settings) -> Iterator[tuple[str, str, str, str]]:
    """Yields the table's rows, as tuples of four strings."""
    number = 0
    for rank, host in enumerate(settings.hosts):
        for place in range(host.num_workers):
            first = settings.first_worker_port
            port = first + place if first else "(free port)"
            if rank != settings.rank:
                devices = "(found there)"
            else:
                devices = "CPU"
                names = settings.devices.of_worker(
                    place, settings.devices_per_worker
                )
                if names:
                    devices = f"GPU {', '.join(names)}"
            yield str(number), str(rank), host.address(port), devices
            number += 1
