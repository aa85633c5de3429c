"""Notices when a worker of a job is gone, and says which one. Pure.

TensorFlow's collectives wait for every worker, and may wait for ever for one
that was killed, hangs, or has ended early. So each worker keeps a connection
to the first one, over which both say every few seconds that they are alive:

* a closed connection means that the process ended: noticed at once;
* silence for `timeout_seconds` means a hung process, a lost host or link;
* a worker that ends in order says so first, and waits for the others.

The first worker tells the rest. What then happens is the caller's
(`on_lost`): `membership.py` makes TensorFlow's collectives raise.
"""

import json
import secrets
import socket
import threading

from kerasmgpu.job import handshake
from kerasmgpu.job.addresses import listen
from kerasmgpu.job.channel import Channel, Stranger, fields
from kerasmgpu.job.entrance import Entrance

TIMEOUT_SECONDS = 30.0
"""Silence after which a worker or machine counts as lost, if none is given."""

TIMEOUT_VARIABLE = "KERASMGPU_TIMEOUT_SECONDS"
"""Environment variable by which the launcher tells workers another one."""

BEATS_PER_TIMEOUT = 6
"""How often a worker says that it is alive in each `timeout_seconds`."""

_PURPOSE = "watch"


class Link:
    """One connection between two workers, with heartbeats both ways.

    Args:
        channel: `channel.Channel`.
        timeout_seconds: Float, silence after which the other end is lost.
        on_message: Called with each message, a dictionary.
        on_closed: Called once, with the reason, when nothing more can come; a
            silent worker that wakes up still gets what is sent then.
    """

    def __init__(self, channel, timeout_seconds, on_message, on_closed):
        self._channel = channel
        self._timeout_seconds = timeout_seconds
        self._on_message = on_message
        self._on_closed = on_closed
        self._closed = threading.Event()
        channel.be_patient_for(timeout_seconds)
        for target in (self._read, self._beat):
            threading.Thread(target=target, daemon=True).start()

    def send(self, **message):
        """Sends a message; a broken connection is noticed by the reader."""
        try:
            self._channel.send(**message)
        except ConnectionError:
            self._channel.hang_up()

    def close(self):
        """Closes the connection; `on_closed` is not called for that."""
        self._closed.set()
        self._channel.hang_up()

    def _beat(self):
        while not self._closed.wait(self._timeout_seconds / BEATS_PER_TIMEOUT):
            self.send()

    def _read(self):
        try:
            while True:
                for message in self._channel.receive():
                    self._on_message(message)
        except TimeoutError:
            reason = f"nothing heard of it for {self._timeout_seconds:g} s"
        except OSError:  # Closed, here or there.
            reason = "its process has ended"
        by_us = self._closed.is_set()
        self._closed.set()
        if not by_us:
            self._on_closed(reason)
        self._channel.close()


class _Watch:
    """What the first worker and the others have in common.

    Attributes:
        lost: Integer, number of the worker that is lost, or `None`. It may be
            this one: the others heard nothing of it for too long.
        reason: String, why it is taken for lost, or `None`.
    """

    def __init__(self, on_lost):
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._leaving = False
        self.lost = self.reason = None

    def wait_for_a_loss(self, seconds):
        """Whether a worker is lost, or is found to be so within `seconds`."""
        self._over.wait(seconds)
        return self.lost is not None

    def _report(self, worker, reason):
        """Tells the caller of the first loss; later ones follow from it."""
        with self._lock:
            if self.lost is not None or self._over.is_set():
                return False
            self.lost, self.reason = worker, reason
        self._over.set()
        if not self._leaving:
            self._on_lost(worker, reason)
        return True


class FirstWorker(_Watch):
    """The first worker's side: hears all others, tells all others.

    Args:
        num_workers: Integer, workers of the job.
        timeout_seconds: Float, silence after which a worker is lost.
        on_lost: Called once as `on_lost(worker, reason)`, in another thread.
        port: Integer, port to listen on. Defaults to 0, any free one.
        token: String that all workers of the job know. Defaults to none.
    """

    def __init__(self, num_workers, timeout_seconds, on_lost, port=0, token=""):
        super().__init__(on_lost)
        self._timeout_seconds = timeout_seconds
        self._expected = set(range(1, num_workers))
        self._links = {}
        self._done = {}  # Numbers of workers, in the order of their ends.
        self._some_done = threading.Event()
        self._invited_by = secrets.token_hex(16)
        self._server = listen(port)
        self._port = self._server.getsockname()[1]
        self._entrance = Entrance(
            self._server, self._welcome, _PURPOSE, token + self._invited_by
        )
        # Not when the first one ends: Python 3.12 and newer start no thread
        # once this process is at its end itself.
        threading.Thread(target=self._mind_early_leavers, daemon=True).start()

    def invitation(self):
        """What the others need to connect: port and a secret, as bytes."""
        return json.dumps(
            {"port": self._port, "secret": self._invited_by}
        ).encode()

    def leave(self, failure=None):
        """Ends the watch, after all others have ended in order or one is lost.

        Args:
            failure: Text of the error that ended this worker, if one did.
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

    def _welcome(self, channel, hello):
        (worker,) = fields(hello, worker=int)
        with self._lock:
            if worker not in self._expected or worker in self._links:
                raise Stranger("no worker of this job")
            self._links[worker] = Link(
                channel,
                self._timeout_seconds,
                lambda message: self._hear(worker, message),
                lambda reason: self._lose(worker, reason),
            )
            all_there = len(self._expected) == len(self._links)
        if all_there:
            self._entrance.close()

    def _hear(self, worker, message):
        if "failed" in message:
            self._lose(worker, message["failed"])
        elif "done" in message:
            self._end_of(worker)
        elif "lost" in message:  # This one: the other heard nothing of it.
            self._report_and_tell(0, *fields(message, reason=str))

    def _lose(self, worker, reason):
        if worker not in self._done:
            self._report_and_tell(worker, reason)

    def _end_of(self, worker):
        with self._lock:
            self._done[worker] = True
            if len(self._done) == len(self._expected) + 1:
                self._over.set()
        self._some_done.set()

    def _mind_early_leavers(self):
        """A worker ended and others still run: their next collective can't."""
        self._some_done.wait()
        if self._over.wait(self._timeout_seconds):
            return
        early = next(iter(self._done))
        reason = (
            f"it ended {self._timeout_seconds:g} s ago while others went on; "
            "all workers must take the same steps"
        )
        self._report_and_tell(early, reason)

    def _report_and_tell(self, worker, reason):
        if self._report(worker, reason):
            self._tell(lost=worker, reason=reason)

    def _tell(self, **message):
        """Tells all; last the lost one, which may not take it in at once."""
        links = list(self._links.items())
        links.sort(key=lambda item: item[0] == message.get("lost"))
        for _, link in links:
            link.send(**message)


class OtherWorker(_Watch):
    """The side of every worker but the first.

    Args:
        index: Integer, number of this worker.
        host: Name of the first worker's host.
        invitation: The bytes of `FirstWorker.invitation`.
        timeout_seconds: See `FirstWorker`.
        on_lost: See `FirstWorker`.
        token: See `FirstWorker`.

    Raises:
        OSError: If the first worker can't be reached, or has another token.
    """

    def __init__(
        self, index, host, invitation, timeout_seconds, on_lost, token=""
    ):
        super().__init__(on_lost)
        invited = json.loads(invitation)
        connection = socket.create_connection(
            (host, invited["port"]), timeout_seconds
        )
        channel = Channel(connection)
        # What TensorFlow's collective carried, and what it did not.
        secret = token + invited["secret"]
        handshake.call(channel, secret, _PURPOSE, timeout_seconds)
        channel.send(worker=index)
        self._link = Link(
            channel,
            timeout_seconds,
            self._hear,
            self._lose_first,
        )

    def leave(self, failure=None):
        """See `FirstWorker.leave`."""
        self._leaving = True
        if failure is None:
            self._link.send(done=True)
            self._over.wait()
        elif self.lost is None:
            self._link.send(failed=failure)
        self._over.set()
        self._link.close()

    def _lose_first(self, reason):
        if self._report(0, reason):
            self._link.send(lost=0, reason=reason)

    def _hear(self, message):
        if "all_done" in message:
            self._over.set()
        elif "lost" in message:
            self._report(*fields(message, lost=int, reason=str))
