"""The controller thread of rank 0, to which all launchers are connected."""

import contextlib
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from kerasmgpu.errors import InputError
from kerasmgpu.job.addresses import listen as listen_on
from kerasmgpu.job.channel import Channel, Stranger, fields
from kerasmgpu.job.entrance import HELLO_SECONDS, Entrance
from kerasmgpu.launch.job_state import Job
from kerasmgpu.launch.settings import Settings

PURPOSE = "launcher of rank 0"
"""The handshake's purpose at `--port`."""

_TICK_SECONDS = 0.1
_SECONDS_TO_PART = 5.0


def listen(port: int) -> socket.socket:
    """Returns a socket that listens for other launchers on all interfaces.

    Raises:
        InputError: If the port is in use.
    """
    try:
        return listen_on(port)
    except OSError as error:
        raise InputError(
            f"Can't listen on port {port} ({error.strerror}): another "
            "launcher of rank 0 may run here. Choose another --port on every "
            "machine"
        ) from None


class Controller:
    """Serves a `Job` to the launchers.

    Args:
        local: Connected `socket.socket` to this machine's launcher.
        listener: Listening `socket.socket`, or `None` on a single machine.
    """

    def __init__(
        self,
        settings: Settings,
        local: socket.socket,
        listener: socket.socket | None,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._say = say
        self._local = Channel(local)
        # Channels and their hellos.
        self._arrived: queue.SimpleQueue[tuple[Channel, dict[str, Any]]]
        self._arrived = queue.SimpleQueue()
        self._entrance = listener and Entrance(
            listener, self._arrive, PURPOSE, settings.token
        )
        self._members: dict[int, Channel] = {}
        self._selector = selectors.DefaultSelector()
        self._next_look = 0.0
        self._gone: dict[
            int, str
        ] = {}  # Rank to the reason, found while sending.
        self._job = Job(
            settings.hosts, settings.policy, self._send, say, time.monotonic()
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self, seconds: float = 10.0) -> None:
        """Waits until all launchers were sent the result of the job."""
        self._thread.join(seconds)

    def _serve(self) -> None:
        try:
            self._arrive(self._local, self._local.receive_one(HELLO_SECONDS))
            while not self._job.is_finished:
                self._turn()
        finally:
            # Also after an error here: launchers see the closed connection and
            # end their workers.
            self._part()

    def _part(self) -> None:
        """Closes all sockets, each once its launcher has read its messages."""
        if self._entrance:
            self._entrance.close()
        while not self._arrived.empty():
            self._arrived.get()[0].close()
        deadline = time.monotonic() + _SECONDS_TO_PART
        for channel in self._members.values():
            with contextlib.suppress(OSError):  # Closed at the other side.
                channel.socket.shutdown(socket.SHUT_WR)
        for channel in self._members.values():
            with contextlib.suppress(OSError):
                while time.monotonic() < deadline:
                    channel.receive()
            channel.close()
        self._local.close()
        self._selector.close()

    def _turn(self) -> None:
        while not self._arrived.empty():
            self._greet(*self._arrived.get())
        for key, _ in self._selector.select(_TICK_SECONDS):
            self._receive(key.data)
        now = time.monotonic()
        if now >= self._next_look:  # At most once per tick, not per message.
            self._next_look = now + _TICK_SECONDS
            for rank, channel in list(self._members.items()):
                self._look_after(rank, channel)
        while self._gone:
            rank, reason = self._gone.popitem()
            self._lose(rank, reason, now)
        self._job.on_time(now)

    def _look_after(self, rank: int, channel: Channel) -> None:
        """Sends a heartbeat, and checks when the launcher last sent one."""
        self._send(rank, alive_only=True)
        timeout = self._settings.timeout_seconds
        if time.monotonic() - channel.last_heard > timeout:
            self._lose(
                rank, f"no heartbeat for {timeout:g} s", channel.last_heard
            )

    def _receive(self, rank: int) -> None:
        try:
            for message in self._members[rank].receive():
                self._handle(rank, message)
        except ConnectionError as error:
            self._lose(rank, str(error), time.monotonic())

    def _arrive(self, channel: Channel, hello: dict[str, Any]) -> None:
        """Checks a launcher's hello; runs in a separate thread."""
        kind, rank, _ = fields(hello, type=str, rank=int, settings=str)
        if kind != "hello" or rank not in range(len(self._settings.hosts)):
            raise Stranger("no launcher of this job")
        self._arrived.put((channel, hello))

    def _greet(self, channel: Channel, hello: dict[str, Any]) -> None:
        """Accepts a launcher into the job, or refuses it."""
        rank = hello["rank"]
        if hello["settings"] != self._settings.digest():
            problem = f"rank 0 was started with {self._settings.shared()}"
        elif rank in self._members:
            problem = f"rank {rank} is in use by another launcher"
        else:
            self._members[rank] = channel
            self._selector.register(channel.socket, selectors.EVENT_READ, rank)
            self._job.on_joined(rank, time.monotonic())
            return
        with contextlib.suppress(ConnectionError):
            channel.send(type="refused", problem=problem)
        channel.close()
        self._say(f"refused a launcher of rank {rank}: {problem}")

    def _handle(self, rank: int, message: dict[str, Any]) -> None:
        now = time.monotonic()
        (kind,) = fields(message, type=str)
        try:
            if kind == "ports":
                run, ports = fields(message, run=int, ports=list)
                self._job.on_ports(rank, run, [int(p) for p in ports], now)
            elif kind == "ended":
                run, number, status, lines = fields(
                    message, run=int, number=int, status=int, lines=list
                )
                self._job.on_ended(rank, run, number, status, lines, now)
            elif kind == "signal":
                (number,) = fields(message, number=int)
                self._job.on_signal(rank, number, now)
            elif kind == "kill":
                self._job.on_kill()
        except (TypeError, ValueError) as error:
            raise Stranger(f"no launcher: {error!r}") from error

    def _lose(self, rank: int, reason: str, last_heard: float) -> None:
        channel = self._members.pop(rank)
        self._gone.pop(rank, None)
        self._selector.unregister(channel.socket)
        channel.close()
        self._job.on_lost(rank, reason, last_heard, time.monotonic())

    def _send(
        self, rank: int, alive_only: bool = False, **message: Any
    ) -> None:
        """Sends a message; after an error the launcher counts as lost."""
        try:
            if alive_only:
                self._members[rank].send_alive(self._settings.heartbeat_seconds)
            else:
                self._members[rank].send(**message)
        except ConnectionError as error:
            self._gone[rank] = str(error)
