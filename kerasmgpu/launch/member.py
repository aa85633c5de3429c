"""The launcher of one machine: runs its workers on commands of rank 0."""

import contextlib
import dataclasses
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerasmgpu.errors import InputError
from kerasmgpu.job import handshake, job_token, ports
from kerasmgpu.job.channel import Channel, fields
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.watch import TIMEOUT_VARIABLE
from kerasmgpu.launch.controller import PURPOSE
from kerasmgpu.launch.processes import Ended, Workers
from kerasmgpu.launch.settings import Settings
from kerasmgpu.signals import Recorder

_TICK_SECONDS = 0.1
_SECONDS_BETWEEN_CALLS = 0.5
_CALL_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class Ending:
    """Result of a job, as a launcher gets it.

    Args:
        status: Integer, the exit status of the job.
        message: String for the user; may be empty.
        culprit: Integer, index of the worker that failed first, or `None`.
        signal: Integer, the signal that told this launcher to end, or `None`.
    """

    status: int
    message: str = ""
    culprit: int | None = None
    signal: int | None = None


def connect(
    settings: Settings, recorder: Recorder, say: Callable[[str], None]
) -> Channel | None:
    """Connects to the launcher of rank 0, which may start later.

    Returns:
        A `channel.Channel`, or `None` if a signal came first.

    Raises:
        InputError: If rank 0 can't be reached within `start_wait_seconds`, or
            has another token.
    """
    wait = settings.policy.start_wait_seconds
    deadline = time.monotonic() + wait
    say(f"waiting for rank 0 at {settings.controller}")
    while not recorder.received:
        try:
            return _call(settings)
        except handshake.WrongToken:
            raise InputError(
                f"The launcher of rank 0 at {settings.controller} belongs "
                f"to another job, or has another {job_token.VARIABLE}. Set the "
                "same one for all launchers, or none"
            ) from None
        except OSError as error:  # Includes a host name not yet in DNS.
            if time.monotonic() > deadline:
                raise InputError(
                    f"Can't reach the launcher of rank 0 at "
                    f"{settings.controller} within {wait:g} s: {error}"
                ) from None
            time.sleep(_SECONDS_BETWEEN_CALLS)
    return None


def _call(settings: Settings) -> Channel:
    """Connects once; returns a `channel.Channel` to the launcher of rank 0."""
    channel = Channel(
        socket.create_connection(
            (settings.hosts[0].name, settings.port), _CALL_SECONDS
        )
    )
    try:
        handshake.call(channel, settings.token, PURPOSE, _CALL_SECONDS)
    except OSError:
        channel.close()
        raise
    return channel


class Member:
    """Runs this machine's workers until rank 0 sends the result of the job."""

    def __init__(
        self,
        settings: Settings,
        channel: Channel,
        workers: Workers,
        recorder: Recorder,
        say: Callable[[str], None],
        environ: Mapping[str, str],
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._workers = workers
        self._recorder = recorder
        self._say = say
        self._environ = environ
        self._run = 0
        self._token_files: list[str] = []
        self._kill_at: float | None = None
        self._num_interrupts = 0
        self._signal: int | None = None
        self._ending: Ending | None = None

    def run(self) -> Ending:
        """Runs until the job ends; returns its `Ending`."""
        try:
            self._send(
                type="hello",
                rank=self._settings.rank,
                settings=self._settings.digest(),
            )
            while self._ending is None:
                self._turn()
            ending = self._ending
        except ConnectionError as error:
            ending = self._end_without_controller(error)
        finally:
            self._workers.kill()
            self._delete_token_files()
            self._channel.close()
        return dataclasses.replace(ending, signal=self._signal)

    def _turn(self) -> None:
        ended, ready = self._workers.wait(_TICK_SECONDS, self._channel.socket)
        self._report(ended)
        for _ in ready:
            for message in self._channel.receive():
                self._obey(message)
        now = time.monotonic()
        silent_seconds = now - self._channel.last_heard
        # Not if `ready`: heartbeats arrive unread while workers are started.
        if not ready and silent_seconds > self._settings.timeout_seconds:
            seconds = self._settings.timeout_seconds
            raise ConnectionError(f"no heartbeat for {seconds:g} s")
        self._send_alive()
        while self._recorder.received:
            self._pass_on(self._recorder.received.pop(0))
        if self._kill_at is not None and now >= self._kill_at:
            self._kill()

    def _obey(self, message: dict[str, Any]) -> None:
        (kind,) = fields(message, type=str)
        if kind == "prepare":
            self._prepare(*fields(message, run=int))
        elif kind == "start":
            self._start(
                *fields(message, addresses=list, numbers=list, token=str)
            )
        elif kind == "end":
            self._workers.ask_to_end()
            self._kill_at = time.monotonic() + message["grace_seconds"]
        elif kind == "refused":
            (problem,) = fields(message, problem=str)
            ours = self._settings.shared()
            self._ending = Ending(
                1,
                f"error: {problem}. This is rank {self._settings.rank}, {ours}",
            )
        elif kind == "finish":
            text, status = fields(message, message=str, status=int)
            self._ending = Ending(status, text, message.get("culprit"))

    def _prepare(self, run: int) -> None:
        """Chooses ports for the workers of the next run."""
        self._delete_token_files()
        self._run = run
        self._kill_at = None
        chosen = ports.free(
            self._settings.num_workers, self._settings.first_worker_port
        )
        self._send(type="ports", run=run, ports=chosen)

    def _start(
        self, addresses: list[str], numbers: list[int], drawn: str
    ) -> None:
        """Starts this machine's workers."""
        token = self._settings.run_token(drawn)
        for place, number in enumerate(numbers):
            self._token_files.append(job_token.write(token))
            environment = worker_environment(
                self._settings,
                place,
                Worker(tuple(addresses), number),
                self._run,
                self._token_files[-1],
                self._environ,
            )
            self._workers.start(number, self._settings.command, environment)
            self._send_alive()  # Starting hundreds takes longer than a beat.

    def _delete_token_files(self) -> None:
        while self._token_files:
            job_token.delete(self._token_files.pop())

    def _pass_on(self, number: int) -> None:
        """Forwards a signal to rank 0; a second Ctrl-C kills the workers."""
        self._signal = self._signal or number
        self._num_interrupts += number == signal.SIGINT
        if number == signal.SIGINT and self._num_interrupts > 1:
            self._say("killing the workers")
            self._send(type="kill")
            self._kill_at = time.monotonic()
        else:
            self._send(type="signal", number=number)

    def _kill(self) -> None:
        self._kill_at = None
        if len(self._workers):
            self._say(
                f"killed after the grace period: {self._workers.numbers()}"
            )
        self._report(self._workers.kill())

    def _report(self, ended: Sequence[Ended]) -> None:
        for end in ended:
            self._send(
                type="ended",
                run=self._run,
                number=end.number,
                status=end.status,
                lines=end.lines,
            )

    def _send(self, **message: Any) -> None:
        # `receive` detects a closed connection, after the last messages have
        # been read; one may be the result of the job.
        with contextlib.suppress(ConnectionError):
            self._channel.send(**message)

    def _send_alive(self) -> None:
        with contextlib.suppress(ConnectionError):  # As in `_send`.
            self._channel.send_alive(self._settings.heartbeat_seconds)

    def _end_without_controller(self, error: Exception) -> Ending:
        """Ends the workers after the connection to rank 0 was lost."""
        grace = self._settings.policy.grace_seconds
        self._say(
            f"lost the launcher of rank 0 at {self._settings.controller} "
            f"({error}): this machine's workers are told to end"
        )
        self._workers.ask_to_end()
        deadline = time.monotonic() + grace
        while len(self._workers) and time.monotonic() < deadline:
            if signal.SIGINT in self._recorder.received:
                break
            self._workers.wait(_TICK_SECONDS)
        self._recorder.received.clear()  # The launcher ends anyway.
        return Ending(status=1)


def worker_environment(
    settings: Settings,
    place: int,
    worker: Worker,
    run: int,
    token_file: str,
    environ: Mapping[str, str],
) -> dict[str, str]:
    """Returns the environment of one worker.

    Args:
        place: Integer, the worker's index on this machine.
        run: Integer, number of restarts so far.
        token_file: String, path of the file with this run's token.
    """
    inherited = {k: v for k, v in environ.items() if k != job_token.VARIABLE}
    return {
        **inherited,
        **settings.devices.environment(place, settings.devices_per_worker),
        "TF_CONFIG": worker.tf_config(),
        job_token.FILE_VARIABLE: token_file,
        TIMEOUT_VARIABLE: f"{settings.timeout_seconds:g}",
        "KERASMGPU_RESTART": str(run),
        "PYTHONUNBUFFERED": "1",
    }
