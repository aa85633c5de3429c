"""The first worker waits for reports of all others, and answers them together.

A report is a connection (`Entrance`) that stays open until the answer. Both
ends of a report are here; what it says is up to `rendezvous.py` and
`introduction.py`. Imports no TensorFlow.
"""

import collections
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from kerasmgpu.job import handshake
from kerasmgpu.job.addresses import split_address
from kerasmgpu.job.channel import Channel, fields
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.entrance import Entrance
from kerasmgpu.job.rivals import Rivals

# The kernel of a healthy host connects faster, even to a suspended process. How
# long that process may take to answer is limited by the start time-out.
CONNECT_SECONDS = 5.0
_SECONDS_OF_DOUBT = 10.0  # For two processes that started together.
_MARGIN_SECONDS = 5.0  # For the first worker's answer after its time-out.


class Gathering:
    """The first worker's side: waits for the others' reports.

    A subclass defines what a report says.

    Args:
        worker: `cluster.Worker`, the first worker's place in the job.
        timeout_seconds: Float, how long to wait for all reports.
        token: String, see `job_token.read`.

    Attributes:
        changed: `threading.Condition` with a reentrant lock; notified at each
            report that is accepted or refused.
    """

    def __init__(
        self, worker: Worker, timeout_seconds: float, token: str
    ) -> None:
        self.num_workers = worker.num_workers
        self._rivals = Rivals(worker)
        self._in_doubt = collections.Counter[int]()
        self._told: dict[int, dict[str, Any]] = {}  # Index to its hello.
        self.timeout_seconds = timeout_seconds
        self.token = token
        self._deadline = time.monotonic() + timeout_seconds
        self.changed = threading.Condition()
        self._links: dict[
            int, Channel
        ] = {}  # Index to the channel of a waiting worker.
        self._trouble: str | None = None

    # What a report says.

    def welcome(self, channel: Channel, hello: dict[str, Any]) -> None:
        """Examines a report; runs in a separate thread.

        It ends with a call of `accept` or `refuse`, or raises an `OSError`.
        """
        raise NotImplementedError

    def decide(self) -> str | None:
        """Returns an error for all workers, or `None`.

        Called once, when all have reported.
        """
        return None

    def answers(self, index: int) -> Iterator[dict[str, Any]]:
        """Yields the messages to a worker if there was no error."""
        yield from ()

    def of_another_job(self, index: int, rival: str) -> str:
        """Returns the error of a worker that another job has started.

        Args:
            rival: String, the process that fits better.
        """
        raise NotImplementedError

    def missing(self, absent: list[int]) -> str:
        """Returns the error if workers have not reported in time."""
        raise NotImplementedError

    # How reports are gathered.

    def run(self, server: socket.socket, purpose: str) -> str | None:
        """Waits for all reports, and answers them; returns an error, or `None`.

        Closes `server`.
        """
        with Entrance(server, self.welcome, purpose, self.token):
            with self.changed:
                while not self._is_decided():
                    left = self._deadline - time.monotonic()
                    if left <= 0:
                        self._forget_the_dead()
                        absent = set(range(1, self.num_workers))
                        absent -= self._links.keys()
                        self._trouble = self.missing(sorted(absent))
                        break
                    self.changed.wait(left)
                if self._trouble is None:
                    self._trouble = self._mixture() or self.decide()
                for index, channel in self._links.items():
                    self._answer(index, channel)
                return self._trouble

    def seconds_left(self) -> float:
        """Returns the seconds until the time-out."""
        return max(self._deadline - time.monotonic(), 0.0)

    def has_report(self, index: int) -> bool:
        """Whether a worker has reported and still waits."""
        with self.changed:
            return index in self._links and self._links[index].is_open()

    def is_of_another_job(
        self, index: int, channel: Channel, hello: dict[str, Any]
    ) -> bool:
        """Refuses a worker of another job with the same variables.

        `welcome` asks this first.
        """
        rival = self._rivals.nearer(index, hello)
        if not rival and self._rivals.is_doubtful(hello):
            rival = self._rival_that_comes(index)
        if rival:
            trouble = self.of_another_job(index, rival)
            self.refuse(channel, trouble, for_all=False)
        return bool(rival)

    def _rival_that_comes(self, index: int) -> str:
        """Waits for another process with an index; describes it, or empty."""
        with self.changed:
            self._in_doubt[index] += 1
            self.changed.notify_all()
            self.changed.wait_for(
                lambda: self._in_doubt[index] > 1 or self.has_report(index),
                min(_SECONDS_OF_DOUBT, self.seconds_left()),
            )
            if self._in_doubt[index] > 1:
                why = f"two processes have rank {index}"
                trouble = self.of_another_job(index, why)
                self._trouble = self._trouble or trouble
                self.changed.notify_all()
                return why
            self._in_doubt[index] -= 1
            return f"it has a worker {index}" if self.has_report(index) else ""

    def accept(
        self, index: int, channel: Channel, hello: dict[str, Any]
    ) -> None:
        """Counts a worker's report; `run` answers on its channel later."""
        with self.changed:
            self._links[index] = channel
            self._told[index] = hello
            self.changed.notify_all()

    def refuse(self, channel: Channel, trouble: str, for_all: bool) -> None:
        """Tells a worker an error, and closes its channel.

        Args:
            for_all: Boolean, whether all workers get the error: `run` then ends
                with it, unless there was one before.
        """
        with contextlib.suppress(ConnectionError):
            channel.send(trouble=trouble)
        channel.close()
        with self.changed:
            if for_all:
                self._trouble = self._trouble or trouble
            self.changed.notify_all()

    def _answer(self, index: int, channel: Channel) -> None:
        with contextlib.suppress(ConnectionError):
            if self._trouble is None:
                for message in self.answers(index):
                    channel.send(**message)
            channel.send(trouble=self._trouble)
        channel.close()

    def _mixture(self) -> str | None:
        """Returns an error if a worker of another job was accepted.

        The job's own one may have started later.
        """
        for number, index in enumerate(self._links):
            told = self._told[index]
            if rival := self._rivals.nearer(index, told, anew=number == 0):
                return self.of_another_job(index, rival)
        return None

    def _is_decided(self) -> bool:
        if self._trouble is None and not self._all_reported():
            return False
        # Not at each report: that would take quadratic time.
        self._forget_the_dead()
        return self._all_reported() or self._trouble is not None

    def _all_reported(self) -> bool:
        return len(self._links) == self.num_workers - 1

    def _forget_the_dead(self) -> None:
        self._links = {i: c for i, c in self._links.items() if c.is_open()}


def ask(
    address: str,
    token: str,
    purpose: str,
    hello: dict[str, Any],
    seconds: float,
    shake_seconds: float,
    heard: Callable[[dict[str, Any]], None] = lambda message: None,
) -> str | None:
    """Reports once to the first worker; returns its error, or `None`.

    Args:
        seconds: Number, how long to wait for an answer; then as long as the
            first worker says that it waits for others.
        shake_seconds: Number, how long to wait for the handshake.
        heard: Function of each message of the answer.

    Raises:
        OSError: As `handshake.call`, or if there is no connection or answer.
    """
    end = time.monotonic() + seconds
    connect_seconds = min(seconds, CONNECT_SECONDS)
    with contextlib.closing(connected(address, connect_seconds)) as channel:
        handshake.call(channel, token, purpose, shake_seconds)
        channel.send(**hello)
        while (left := end - time.monotonic()) > 0:
            answer = channel.receive_one(left)
            if "trouble" in answer:
                trouble = answer["trouble"]
                return None if trouble is None else str(trouble)
            if "seconds" in answer:
                (left,) = fields(answer, seconds=float)
                end = time.monotonic() + left + _MARGIN_SECONDS
            else:
                heard(answer)
    raise TimeoutError("it does not answer")


def connected(address: str, seconds: float) -> Channel:
    """Returns a `Channel` to an address; connecting may take `seconds`.

    Raises:
        OSError: If it can't connect.
    """
    connection = socket.create_connection(split_address(address), seconds)
    return Channel(connection)
