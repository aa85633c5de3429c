"""The rendezvous of a job's workers, before TensorFlow starts.

TensorFlow's engine waits forever for a missing worker, and reports a port in
use only as a server that could not start. So each worker first binds its port,
and all report to the first worker. That one calls each worker back at its
address, as TensorFlow will, and sends all of them the result: go on, or an
error.

A report is a claim to be worker `index`, with a nonce. The claim is verified if
the process at that worker's address repeats the nonce. If the verification
fails, the claimant gets the error at once. All workers get it if the claim is
certainly of this job: it came with the launcher's token, from a worker that
could be called back, or with the same list of addresses. Other failed claims
may come from strangers. They are ignored, but are part of the error message if
a worker is missing at the end. Imports no TensorFlow.
"""

import contextlib
import errno
import hashlib
import json
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kerasmgpu.errors import InputError
from kerasmgpu.job import (
    gathering,
    handshake,
    rivals,
    shared_gpus,
    worker_processes,
)
from kerasmgpu.job.addresses import listen, split_address
from kerasmgpu.job.channel import Channel, Stranger, fields
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.entrance import Entrance

START_VARIABLE = "KERASMGPU_START_TIMEOUT_SECONDS"
"""Environment variable of the start time-out, in seconds."""

PAUSE_SECONDS = 0.2
"""Seconds between two attempts to reach the first worker."""

_MOST_WORKERS = 1 << 16
_MOST_DOUBTS = 3  # Failed claims in the final error message.
_SOMETHING_ELSE = "another program answers there"
_ANOTHER = "another worker with that index answers there"


def meet(
    worker: Worker,
    timeout_seconds: float,
    token: str = "",
    gpus: Sequence[str] = (),
) -> list[str]:
    """Blocks until all workers of the job have reported to the first.

    The time-out limits how long the first worker waits for the others, and how
    long each of them waits for the first worker to answer. That answer has the
    seconds that remain.

    Args:
        worker: `cluster.Worker`, this worker's place in the job.
        timeout_seconds: Float, the start time-out.
        token: String, secret that all workers of the job got from their
            launcher (`job_token.read`). Defaults to none. Both ends of each
            connection prove that they know it (`handshake.py`).
        gpus: Sequence of strings, UUIDs of the GPUs that this worker sees.

    Returns:
        List of strings, the GPUs that this worker is to use: all that it sees,
        or its share of them if other workers see the same ones.

    Raises:
        InputError: If this worker's port can't be bound, if two workers have
            the same index or different clusters, or if workers are missing
            after the time-out; the message names them.

    Example:

    ```python
    rendezvous.meet(cluster.from_environment(), timeout_seconds=300)
    ```
    """
    own = list(gpus)
    with _own_port(worker, timeout_seconds) as server:
        if worker.is_first:
            claims = _Claims(worker, timeout_seconds, token, own)
            trouble = claims.run(server, _name(worker, 0))
            own = claims.divided.get(0, own)
        else:
            trouble = _report(worker, server, timeout_seconds, token, own)
    if trouble is not None:
        raise InputError(trouble)
    return own


def _own_port(worker: Worker, timeout_seconds: float) -> socket.socket:
    """Returns a socket that listens on this worker's port, IPv4 and IPv6.

    TensorFlow will listen there later. Waits where another job's worker with
    the same variables has the port: if this job's worker 0 was the first to
    start, it refuses that worker, which then ends.

    Raises:
        InputError: If the port can't be bound.
    """
    address = worker.addresses[worker.index]
    _, port = split_address(address)
    found = rivals.Rivals(worker)
    deadline = time.monotonic() + (0 if worker.is_first else timeout_seconds)
    while True:
        try:
            return listen(port, backlog=max(len(worker.addresses), 128))
        except OSError as error:
            rival = ""
            if error.errno == errno.EADDRINUSE:
                rival = found.other_claimant()
                why = (
                    f"another job on this machine has it ({rival}). Choose"
                    if rival
                    else "it is in use by another program or by a worker with "
                    "the same index. Give each worker its own index, or choose"
                )
            else:
                why = f"{error.strerror}. Choose"
            if not rival or time.monotonic() >= deadline:
                raise InputError(
                    f"Worker {worker.index} can't listen on port {port} "
                    f"({address}): {why} another port."
                ) from None
        time.sleep(PAUSE_SECONDS)


def _name(worker: Worker, index: int) -> str:
    """Returns the `purpose` of handshakes at the port of the job's worker `index`."""
    return f"worker {index} {worker.run}".rstrip()


def _list_of(worker: Worker) -> str:
    """Returns a digest of the list of addresses."""
    text = json.dumps(list(worker.addresses))
    return hashlib.sha256(text.encode()).hexdigest()


# The first worker ------------------------------------------------------------


class _Claims(gathering.Gathering):
    """The first worker's side of the rendezvous."""

    def __init__(
        self,
        worker: Worker,
        timeout_seconds: float,
        token: str,
        gpus: Sequence[str],
    ) -> None:
        super().__init__(worker, timeout_seconds, token)
        self._worker = worker
        self._gpus: dict[int, list[str]] = {0: list(gpus)}
        self.divided: dict[int, list[str]] = {}
        self._doubts: dict[int, str] = {}

    def welcome(self, channel: Channel, hello: dict[str, Any]) -> None:
        index, num_workers, nonce, known = fields(
            hello, worker=int, num_workers=int, nonce=str, addresses=str
        )
        if not 0 < index < num_workers <= _MOST_WORKERS:
            raise Stranger(f"no index of a worker: {index}")
        channel.send(seconds=self.seconds_left())
        there = channel.socket.getpeername()[0].removeprefix("::ffff:")
        if self.is_of_another_job(index, channel, hello):
            return
        problem = self._call(index, nonce)
        trouble = self._trouble_with(index, num_workers, problem, there)
        if trouble is None:
            self._gpus[index] = list(map(str, hello.get("gpus", ())))
            self.accept(index, channel, hello)
            return
        is_ours = self.token or problem is None
        is_ours = is_ours or handshake.is_same(known, _list_of(self._worker))
        if not is_ours and len(self._doubts) < _MOST_DOUBTS:
            self._doubts.setdefault(index, trouble)
        self.refuse(channel, trouble, for_all=bool(is_ours))

    def decide(self) -> str | None:
        try:
            self.divided = shared_gpus.divide(self._gpus)
        except InputError as error:
            return str(error)
        return None

    def answers(self, index: int) -> Iterator[dict[str, Any]]:
        if self.divided[index] != self._gpus[index]:
            yield {"gpus": self.divided[index]}

    def _call(self, index: int, nonce: str) -> str | None:
        """Verifies a claim: calls the worker's address, compares the nonce.

        Returns an error; `None` if that worker made the claim.
        """
        if index >= self._worker.num_workers:
            return _SOMETHING_ELSE
        address = self._worker.addresses[index]
        try:
            with contextlib.closing(
                gathering.connected(address, gathering.CONNECT_SECONDS)
            ) as channel:
                handshake.call(
                    channel,
                    self.token,
                    _name(self._worker, index),
                    self.seconds_left(),
                )
                channel.send(call=nonce)
                answer = channel.receive_one(self.seconds_left())
        except OSError as error:
            return reason(error)
        if answer.get("worker") != index:
            return _SOMETHING_ELSE
        return (
            None if handshake.is_same(answer.get("nonce"), nonce) else _ANOTHER
        )

    def _trouble_with(
        self, index: int, num_workers: int, problem: str | None, there: str
    ) -> str | None:
        """Returns the error message of a claim, or `None`.

        Args:
            num_workers: Integer, workers that the claimant knows of.
            problem: What `_call` returned.
            there: String, IP address of the claimant.
        """
        worker = self._worker
        if num_workers != worker.num_workers:
            return (
                f"Worker {index} (on {there}) has a list of {num_workers} "
                f"workers, and worker 0 one of {worker.num_workers}. Give all "
                "workers the same addresses."
            )
        if problem is _ANOTHER:
            return (
                f"Two workers have index {index} (the second on {there}). Give "
                f"each worker its own index, 0 to {num_workers - 1}."
            )
        if problem is not None:
            return (
                f"Worker 0 can't reach worker {index}, which runs on {there}, at "
                f"its address {worker.addresses[index]}: {problem}. Check the "
                "address and the firewall."
            )
        return None

    def of_another_job(self, index: int, rival: str) -> str:
        named = f": {rival}" if rival else ""
        return (
            f"Worker 0 ({self._worker.addresses[0]}) is of another job than this "
            f"worker {index}, with the same addresses{named}. Give each job "
            "ports of its own."
        )

    def missing(self, absent: list[int]) -> str:
        addresses = self._worker.addresses
        missing = [f"worker {index} ({addresses[index]})" for index in absent]
        text = (
            f"Missing after {self.timeout_seconds:g} s: "
            f"{', '.join(missing)}. Check that it was started and can "
            f"reach {addresses[0]}."
        )
        return " Rejected: ".join([text, *self._doubts.values()])


# All others ------------------------------------------------------------------


def _report(
    worker: Worker,
    server: socket.socket,
    timeout_seconds: float,
    token: str,
    gpus: list[str],
) -> str | None:
    """Reports to the first worker; returns an error message, or `None`.

    Replaces `gpus` by those that this worker is to use.
    """
    deadline = time.monotonic() + timeout_seconds
    nonce = secrets.token_hex(16)
    hello = {
        "worker": worker.index,
        "num_workers": worker.num_workers,
        "nonce": nonce,
        "addresses": _list_of(worker),
        **worker_processes.identity(),
        **({"gpus": list(gpus)} if gpus else {}),
    }

    def heard(message: dict[str, Any]) -> None:
        gpus[:] = fields(message, gpus=list)[0]

    def answer(channel: Channel, call: dict[str, Any]) -> None:
        # The nonce is sent only to a caller that knows it.
        is_ours = handshake.is_same(call.get("call"), nonce)
        repeated = {"nonce": nonce} if is_ours else {}
        channel.send(worker=worker.index, **repeated)
        channel.close()

    found: OSError = TimeoutError("it does not answer")
    with Entrance(server, answer, _name(worker, worker.index), token):
        while (seconds := deadline - time.monotonic()) > 0:
            try:
                return gathering.ask(
                    worker.addresses[0],
                    token,
                    _name(worker, 0),
                    hello,
                    seconds,
                    seconds,
                    heard,
                )
            except handshake.WrongToken:
                return _of_another_job(worker)
            except OSError as error:
                if not isinstance(error, TimeoutError):
                    found = error  # The last try's time-out may be too short.
            time.sleep(PAUSE_SECONDS)
    return (
        f"Worker 0 ({worker.addresses[0]}) could not be reached for "
        f"{timeout_seconds:g} s: {reason(found)}. Check that it was started, its "
        "address, and this worker's index."
    )


def _of_another_job(worker: Worker) -> str:
    return (
        f"Worker 0 ({worker.addresses[0]}) belongs to another job, or to an earlier "
        "run of this one: it has another token. Start all workers of a job by "
        "the same launchers."
    )


def reason(error: OSError) -> str:
    """Describes why a worker could not be asked."""
    if isinstance(error, (Stranger, handshake.WrongToken)):
        return _SOMETHING_ELSE
    return error.strerror or str(error)
