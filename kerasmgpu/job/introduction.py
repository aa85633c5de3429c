"""Exchanges the addresses of workers that another launcher has started.

`mpirun`, `torchrun` and others tell a process its rank and, at most, the
machine of the first one. Each worker chooses a free port and reports it to the
first worker, which takes the machine from the connection and sends all of them
the list. Then they meet as the workers of any job do (`rendezvous.py`).

The first worker listens on the first free one of some ports; the others try
them in turn, and know the job by the handshake. On one machine it listens on
the loopback interface only. Jobs on several machines need a token: who may
report, and so become a worker, must have been started with it. Imports no
TensorFlow.
"""

import hashlib
import socket
import time
from collections.abc import Iterator
from typing import Any

from kerasmgpu.errors import InputError
from kerasmgpu.job import (
    gathering,
    handshake,
    job_token,
    port_claims,
    ports,
    worker_processes,
)
from kerasmgpu.job.addresses import join_address, listen
from kerasmgpu.job.channel import Channel, Stranger, fields
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.entrance import HELLO_SECONDS
from kerasmgpu.job.launchers import HOST_VARIABLE, PORT_VARIABLE, Meeting
from kerasmgpu.job.rendezvous import PAUSE_SECONDS, reason

_NUM_PORTS = 16
_SECONDS_TO_GET_A_PORT = 5.0  # A job before may be about to end.
_SECONDS_TO_BE_HEARD = 15.0  # Of a worker 0 that has claimed the port.
_AT_ONCE = 1000  # Addresses in a message, whose length is limited.


def introduce(worker: Worker, timeout_seconds: float, token: str) -> Worker:
    """Exchanges the workers' addresses; all workers call it.

    Args:
        worker: `cluster.Worker`, with a meeting.

    Returns:
        The `cluster.Worker` with all addresses; without a meeting, `worker`.

    Raises:
        InputError: If the job is on several machines and has no token, if no
            port is free, if two workers have the same rank or different
            numbers of processes, or if workers are missing after the time-out.
    """
    meeting = worker.meeting
    if meeting is None:
        return worker
    if not meeting.is_local and not token:
        raise InputError(
            f"{meeting.launcher} started this job on several machines: set "
            f"{job_token.VARIABLE} to the same random text for all of its "
            "processes (`openssl rand -hex 32`), so that nobody else joins it"
        )
    (port,) = ports.free(1)
    if worker.is_first:
        _claim(meeting)
        known = _Introductions(worker, meeting, port, timeout_seconds, token)
        trouble = known.run(_listening(meeting), _purpose(meeting))
        addresses = known.addresses
    else:
        addresses = []
        trouble = _report(
            worker, meeting, port, timeout_seconds, token, addresses
        )
    if trouble is not None:
        raise InputError(trouble)
    return Worker(tuple(addresses), worker.index)


def _claim(meeting: Meeting) -> None:
    """Claims the port, if it alone names the job.

    Raises:
        InputError: If another job has it.
    """
    deadline = time.monotonic() + _SECONDS_TO_GET_A_PORT
    while meeting.is_by_hand and not port_claims.claim(meeting.port):
        if time.monotonic() >= deadline:
            pid = port_claims.holder(meeting.port)
            raise InputError(_in_use(meeting, f"process {pid}" if pid else ""))
        time.sleep(PAUSE_SECONDS)


def _in_use(meeting: Meeting, process: str) -> str:
    named = f": {process}" if process else ""
    return (
        f"{PORT_VARIABLE}={meeting.port} is in use by another job on this "
        f"machine{named}. Give each job a {PORT_VARIABLE} of its own."
    )


def candidates(meeting: Meeting) -> list[int]:
    """Returns the ports on which the first worker may listen."""
    first = min(meeting.port + 1, 65536 - _NUM_PORTS)
    return list(range(first, first + _NUM_PORTS))


def _purpose(meeting: Meeting) -> str:
    """Returns the `purpose` of handshakes, by which a job knows its workers."""
    run = meeting.run
    if not run and meeting.is_local and not meeting.is_by_hand:
        run = worker_processes.launcher(meeting.rank_variable)
    text = f"{meeting.launcher} {meeting.num_workers} {meeting.port} {run}"
    return f"introduction {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _listening(meeting: Meeting) -> socket.socket:
    found = candidates(meeting)
    for port in found:
        try:
            return listen(port, meeting.num_workers, loopback=meeting.is_local)
        except OSError:
            continue
    raise InputError(
        f"Worker 0 can't listen on any port from {found[0]} to {found[-1]}, "
        f"where the workers meet: all are in use. Set {PORT_VARIABLE} to a "
        "port below free ones, the same for all processes"
    )


class _Introductions(gathering.Gathering):
    """The first worker's side.

    Args:
        port: Integer, this worker's own port.
    """

    def __init__(
        self,
        worker: Worker,
        meeting: Meeting,
        port: int,
        timeout_seconds: float,
        token: str,
    ) -> None:
        super().__init__(worker, timeout_seconds, token)
        self._meeting = meeting
        self._known = {0: join_address(meeting.host, port)}

    @property
    def addresses(self) -> list[str]:
        """List of strings, the addresses of the workers that are known."""
        return [self._known[index] for index in sorted(self._known)]

    def welcome(self, channel: Channel, hello: dict[str, Any]) -> None:
        index, count, port = fields(
            hello, worker=int, num_workers=int, port=int
        )
        if not 0 < index < count or not 0 < port < 1 << 16:
            raise Stranger(f"no rank and port of a worker: {index}, {port}")
        channel.send(seconds=self.seconds_left())
        here, there = (
            name[0].removeprefix("::ffff:")
            for name in (
                channel.socket.getsockname(),
                channel.socket.getpeername(),
            )
        )
        if self.is_of_another_job(index, channel, hello):
            return
        # A connection of this machine with itself shows an address by which
        # the other machines may not reach it.
        host = self._meeting.host if there == here else there
        with self.changed:  # Of two processes with one rank, one comes first.
            if count != self.num_workers:
                trouble = (
                    f"Worker {index} (on {there}) was started as one of "
                    f"{count}, and worker 0 as one of {self.num_workers}."
                )
            elif self.has_report(index):
                trouble = (
                    f"Two processes have rank {index} (the second on {there}). "
                    "If they are of two jobs, give each job its own "
                    f"{PORT_VARIABLE}."
                )
            else:
                self._known[index] = join_address(host, port)
                self.accept(index, channel, hello)
                return
        self.refuse(channel, trouble, for_all=True)

    def answers(self, index: int) -> Iterator[dict[str, Any]]:
        addresses = self.addresses
        for start in range(0, len(addresses), _AT_ONCE):
            yield {"addresses": addresses[start : start + _AT_ONCE]}

    def of_another_job(self, index: int, rival: str) -> str:
        return _in_use(self._meeting, rival)

    def missing(self, absent: list[int]) -> str:
        ranks = ", ".join(map(str, absent))
        return (
            f"Missing after {self.timeout_seconds:g} s: the processes of "
            f"{self._meeting.launcher} with rank {ranks}. Check that each runs "
            f"this program, and reaches {self._meeting.host}, ports "
            f"{_range(self._meeting)}."
        )


def _range(meeting: Meeting) -> str:
    found = candidates(meeting)
    return f"{found[0]} to {found[-1]}"


class _Unheard:
    """Watches whether a worker 0 has the port that doesn't expect this worker."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self._until: float | None = None

    def trouble(self) -> str | None:
        """Returns an error once that has lasted; called while none answers."""
        pid = None
        if self._meeting.is_by_hand and self._meeting.is_local:
            pid = port_claims.holder(self._meeting.port)
        if pid is None:
            self._until = None
        elif self._until is None:
            self._until = time.monotonic() + _SECONDS_TO_BE_HEARD
        elif time.monotonic() > self._until:
            return _in_use(self._meeting, f"process {pid}" if pid else "")
        return None


def _report(
    worker: Worker,
    meeting: Meeting,
    port: int,
    timeout_seconds: float,
    token: str,
    addresses: list[str],
) -> str | None:
    """Reports to the first worker; fills `addresses`, or returns an error."""
    deadline = time.monotonic() + timeout_seconds
    hello = {
        "worker": worker.index,
        "num_workers": worker.num_workers,
        "port": port,
        **worker_processes.identity(),
    }
    purpose = _purpose(meeting)

    def heard(message: dict[str, Any]) -> None:
        addresses.extend(fields(message, addresses=list)[0])

    found: OSError = TimeoutError("it does not answer")
    unheard = _Unheard(meeting)
    while time.monotonic() < deadline:
        is_slow = False
        for candidate in candidates(meeting):
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                break
            addresses.clear()
            try:
                return gathering.ask(
                    join_address(meeting.host, candidate),
                    token,
                    purpose,
                    hello,
                    seconds,
                    min(seconds, HELLO_SECONDS),
                    heard,
                )
            except handshake.WrongToken:
                return (
                    f"Worker 0 on {meeting.host} has another "
                    f"{job_token.VARIABLE} than worker {worker.index}. Set the "
                    "same one for all processes of the job."
                )
            except OSError as error:
                is_slow |= isinstance(error, TimeoutError)
                if not isinstance(error, (TimeoutError, Stranger)):
                    found = error
        if not is_slow and (trouble := unheard.trouble()):
            return trouble
        time.sleep(PAUSE_SECONDS)
    return (
        f"Worker 0 could not be reached on {meeting.host}, ports "
        f"{_range(meeting)}, for {timeout_seconds:g} s: {reason(found)}. Check "
        f"that rank 0 runs this program, {HOST_VARIABLE} and the firewall."
    )
