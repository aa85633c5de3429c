"""Runs the launcher of one machine."""

import dataclasses
import os
import signal
import socket
from collections.abc import Mapping

from kerasmgpu.errors import InputError
from kerasmgpu.job import port_claims
from kerasmgpu.job.channel import Channel
from kerasmgpu.job.exit_status import EXIT_PREEMPTED
from kerasmgpu.launch import gpus
from kerasmgpu.launch.controller import Controller, listen
from kerasmgpu.launch.member import Ending, Member, connect
from kerasmgpu.launch.output import Terminal
from kerasmgpu.launch.processes import Workers
from kerasmgpu.launch.settings import Settings
from kerasmgpu.signals import Recorder

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_OPEN_PORTS = (
    "anyone who reaches the workers' ports can run code as you: TensorFlow's "
    "server has no password. Restrict access to them (docs/security.md)"
)


def launch(
    settings: Settings,
    terminal: Terminal,
    environ: Mapping[str, str] = os.environ,
) -> Ending:
    """Runs this machine's workers, and on rank 0 the job's controller.

    Must be called in the main thread, which receives the signals.

    Args:
        settings: `settings.Settings`.
        terminal: `output.Terminal`, for the workers' output.
        environ: Mapping, the environment that workers inherit. Defaults to
            `os.environ`.

    Returns:
        A `member.Ending`.

    Raises:
        InputError: If a port is in use, or rank 0 can't be reached.
    """
    _claim_worker_ports(settings)
    with Recorder(_SIGNALS, unless_ignored=True) as recorder:
        controller = None
        if settings.rank == 0:
            several = len(settings.hosts) > 1
            listener = listen(settings.port) if several else None
            if several:
                terminal.say(_OPEN_PORTS)
            ours, theirs = socket.socketpair()
            controller = Controller(settings, theirs, listener, terminal.say)
            channel = Channel(ours)
        else:
            connected = connect(settings, recorder, terminal.say)
            if connected is None:
                number = recorder.received.pop(0)
                recorder.received.clear()
                return Ending(status=128 + number, signal=number)
            channel = connected
        workers = Workers(terminal, settings.worker_log_dir)
        ending = Member(
            settings, channel, workers, recorder, terminal.say, environ
        ).run()
        if controller:
            controller.close()
        if ending.signal is not None:
            recorder.received.clear()  # The launcher ends anyway.
        elif ending.status not in (0, EXIT_PREEMPTED):
            reason = gpus.lost(settings.devices, environ)
            message = "\n".join(filter(None, (ending.message, reason)))
            ending = dataclasses.replace(ending, message=message)
        return ending


def _claim_worker_ports(settings: Settings) -> None:
    """Claims the fixed ports of this machine's workers, if there are any.

    Else workers of two launchers could each get some of them.
    """
    first = settings.first_worker_port
    if first is None:
        return
    for port in range(first, first + settings.num_workers):
        if not port_claims.claim(port):
            raise InputError(
                f"Port {port} is in use by the workers of another launcher on "
                "this machine. Give each job a --first_worker_port of its own. "
                f"Received: --first_worker_port={first} for "
                f"{settings.num_workers} workers"
            )
