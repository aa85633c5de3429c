"""Detects a lost worker by heartbeats, and reports which one it is.

TensorFlow's collectives wait for every worker, possibly forever for one that
was killed, hangs, or has ended early. So each worker keeps a connection to the
first one, with heartbeats both ways:

* a closed connection means that the process ended: detected at once;
* silence for `timeout_seconds` means a hung process, a lost host or link;
* a worker that ends normally sends a message first, and waits for the others.

The first worker reports a loss to the others. Each calls `on_lost`:
`membership.py` makes TensorFlow's collectives raise. Imports no TensorFlow.
"""

import json
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any

from kerasmgpu.job import handshake, loss
from kerasmgpu.job.addresses import listen
from kerasmgpu.job.channel import Channel, Stranger, fields
from kerasmgpu.job.entrance import Entrance
from kerasmgpu.job.links import Link, Links

TIMEOUT_SECONDS = 30.0
"""Default heartbeat time-out of workers and machines."""

TIMEOUT_VARIABLE = "KERASMGPU_TIMEOUT_SECONDS"
"""Environment variable with the launcher's heartbeat time-out."""

_PURPOSE = "watch"


def _ignore(*_: Any) -> None:
    """Takes messages that nobody has asked for."""


class _Watch:
    """Base class of the first worker's and the others' side.

    Attributes:
        lost: Integer, index of the lost worker, or `None`. It may be this
            worker, if its heartbeats timed out at the others.
        reason: String, why it counts as lost, or `None`.
        hear_place: Function of a worker's index and its place; see `places.py`.
        hear_attempts: Function that takes other messages; see `attempts.py`.
    """

    def __init__(self, on_lost: Callable[[int, str], None]) -> None:
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._leaving = False
        self.lost: int | None = None
        self.reason: str | None = None
        self.hear_place: Callable[[int, dict[str, Any]], None] = _ignore
        self.hear_attempts: Callable[[dict[str, Any]], None] = _ignore

    def wait_for_a_loss(self, seconds: float) -> bool:
        """Waits up to `seconds` for a loss; returns whether a worker is lost."""
        self._over.wait(seconds)
        return self.lost is not None

    def wait_for_the_end(self, seconds: float) -> bool:
        """Waits up to `seconds`; returns whether the job is over."""
        return self._over.wait(seconds)

    def _report(self, worker: int, reason: str) -> bool:
        """Records the first loss; ignores later ones, and any once it is over.

        Calls `on_lost`, unless this worker is leaving.

        Returns:
            Boolean, whether it was recorded.
        """
        with self._lock:
            if self.lost is not None or self._over.is_set():
                return False
            self.lost, self.reason = worker, reason
        try:
            # Before the wait for a loss is over: the process may end behind it.
            if not self._leaving:
                self._on_lost(worker, reason)
        finally:
            self._over.set()
        return True


class FirstWorker(_Watch):
    """The first worker's side: receives heartbeats and reports losses.

    Args:
        timeout_seconds: Float, silence after which a worker is lost.
        on_lost: Called as `on_lost(worker, reason)` at the first loss, in
            another thread.
        port: Integer, port to listen on. Defaults to 0, any free one.
        token: String that all workers of the job know. Defaults to none.
    """

    def __init__(
        self,
        num_workers: int,
        timeout_seconds: float,
        on_lost: Callable[[int, str], None],
        port: int = 0,
        token: str = "",
    ) -> None:
        super().__init__(on_lost)
        self._timeout_seconds = timeout_seconds
        self._expected = set(range(1, num_workers))
        self._links: dict[int, Link] = {}
        self._served = Links(timeout_seconds)
        self._done: dict[
            int, bool
        ] = {}  # Indices of workers, in the order of their ends.
        self._some_done = threading.Event()
        self._invited_by = secrets.token_hex(16)
        self._server = listen(port)
        self._port = self._server.getsockname()[1]
        self._entrance = Entrance(
            self._server, self._welcome, _PURPOSE, token + self._invited_by
        )
        # Started now: Python 3.12 and newer start no thread while the
        # interpreter shuts down.
        threading.Thread(target=self._mind_early_leavers, daemon=True).start()

    def invitation(self) -> bytes:
        """Returns the port and a secret for the others to connect, as bytes."""
        return json.dumps(
            {"port": self._port, "secret": self._invited_by}
        ).encode()

    def leave(self, failure: str | None = None) -> None:
        """Ends the watch for this worker.

        Without a `failure`, waits until all others have ended normally or one
        is lost. With one, tells it to the others and doesn't wait.

        Args:
            failure: String, the error that ended this worker, or `None`.
        """
        self._leaving = True
        if failure is None:
            self._end_of(0)
            self._over.wait()
        if self.lost is None and failure is None:
            self._tell(all_done=True)
        elif self.lost is None:
            self._tell(lost=0, reason=failure)
        self._over.set()
        self._some_done.set()
        self._entrance.close()
        self._served.end()

    def _welcome(self, channel: Channel, hello: dict[str, Any]) -> None:
        (worker,) = fields(hello, worker=int)
        with self._lock:
            if worker not in self._expected or worker in self._links:
                raise Stranger("no worker of this job")
            link = self._links[worker] = Link(
                channel,
                lambda message: self._hear(worker, message),
                lambda reason: self._lose(worker, reason),
            )
            self._served.serve(link)
            all_there = len(self._expected) == len(self._links)
        if all_there:
            self._entrance.close()

    def _hear(self, worker: int, message: dict[str, Any]) -> None:
        if "failed" in message:
            self._lose(worker, message["failed"])
        elif "done" in message:
            self._end_of(worker)
        elif "lost" in message:  # This worker: its heartbeats timed out there.
            self._report_and_tell(0, *fields(message, reason=str))
        elif "place" in message:
            self.hear_place(worker, message["place"])
        else:
            self.hear_attempts(message)

    def _lose(self, worker: int, reason: str) -> None:
        if worker not in self._done:
            self._report_and_tell(worker, reason)

    def _end_of(self, worker: int) -> None:
        with self._lock:
            self._done[worker] = True
            if len(self._done) == len(self._expected) + 1:
                self._over.set()
        self._some_done.set()

    def _mind_early_leavers(self) -> None:
        """Reports a worker that ended early: others' collectives would hang."""
        self._some_done.wait()
        if self._over.wait(self._timeout_seconds):
            return
        early = next(iter(self._done))
        self._report_and_tell(early, loss.ended_early(self._timeout_seconds))

    def _report_and_tell(self, worker: int, reason: str) -> None:
        if self._report(worker, reason):
            self._tell(lost=worker, reason=reason)

    def part(self, worker: int, reason: str) -> None:
        """Ends the job: reports a worker in other collectives as lost."""
        self._report_and_tell(worker, reason)

    def tell(self, **message: Any) -> None:
        """Sends a message to all other workers."""
        self._tell(**message)

    def _tell(self, **message: Any) -> None:
        """Sends a message to all workers, to the lost one last: that may block."""
        links = list(self._links.items())
        links.sort(key=lambda item: item[0] == message.get("lost"))
        for _, link in links:
            link.send(**message)


class OtherWorker(_Watch):
    """The side of every worker but the first.

    Args:
        host: Name of the first worker's host.
        invitation: The bytes of `FirstWorker.invitation`.

    Raises:
        OSError: If the first worker can't be reached, or has another token.
    """

    def __init__(
        self,
        index: int,
        host: str,
        invitation: bytes,
        timeout_seconds: float,
        on_lost: Callable[[int, str], None],
        token: str = "",
    ) -> None:
        super().__init__(on_lost)
        invited = json.loads(invitation)
        connection = socket.create_connection(
            (host, invited["port"]), timeout_seconds
        )
        channel = Channel(connection)
        # The launcher's token was not sent through TensorFlow's collective.
        secret = token + invited["secret"]
        handshake.call(channel, secret, _PURPOSE, timeout_seconds)
        channel.send(worker=index)
        self._link = Link(channel, self._hear, self._lose_first)
        self._served = Links(timeout_seconds)
        self._served.serve(self._link)

    def leave(self, failure: str | None = None) -> None:
        """See `FirstWorker.leave`."""
        self._leaving = True
        if failure is None:
            self._link.send(done=True)
            self._over.wait()
        elif self.lost is None:
            self._link.send(failed=failure)
        self._over.set()
        self._link.close()
        self._served.end()

    def _lose_first(self, reason: str) -> None:
        if self._report(0, reason):
            self._link.send(lost=0, reason=reason)

    def _hear(self, message: dict[str, Any]) -> None:
        if "all_done" in message:
            self._over.set()
        elif "lost" in message:
            self._report(*fields(message, lost=int, reason=str))
        else:
            self.hear_attempts(message)

    def tell(self, **message: Any) -> None:
        """Sends a message to the first worker."""
        self._link.send(**message)
