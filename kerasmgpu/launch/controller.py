"""The thread of rank 0 that all launchers are connected to."""

import contextlib
import select
import socket
import threading
import time

from kerasmgpu.addresses import listen as listen_on
from kerasmgpu.errors import InputError
from kerasmgpu.launch.job import Job
from kerasmgpu.launch.messages import Channel

_TICK_SECONDS = 0.1
_SECONDS_TO_SAY_HELLO = 10.0
_SECONDS_TO_PART = 5.0


def listen(port):
    """A socket on which other launchers are awaited, on all interfaces.

    Args:
        port: Integer.

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
        settings: `settings.Settings`.
        local: Connected `socket.socket`, the other end of which is that of
            this machine's own launcher.
        listener: Listening `socket.socket`, or `None` on a single machine.
        say: Function of a string.
    """

    def __init__(self, settings, local, listener, say):
        self._settings = settings
        self._listener = listener
        self._say = say
        self._strangers = [Channel(local)]  # Who have not said hello.
        self._members = {}
        self._gone = {}  # Rank to the reason, found while sending.
        self._job = Job(
            settings.hosts,
            settings.policy,
            self._send,
            say,
            time.monotonic(),
        )
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self, seconds=10.0):
        """Waits until all launchers were told how the job ended."""
        self._thread.join(seconds)

    def _serve(self):
        try:
            while not self._job.is_finished:
                self._turn()
        finally:
            # Also if something went wrong here: launchers see it, and end
            # their workers.
            self._part()

    def _part(self):
        """Closes all sockets, those of launchers after they have read."""
        if self._listener:
            self._listener.close()
        for channel in self._strangers:
            channel.close()
        deadline = time.monotonic() + _SECONDS_TO_PART
        for channel in self._members.values():
            with contextlib.suppress(OSError):  # Closed at the other side.
                channel.socket.shutdown(socket.SHUT_WR)
        for channel in self._members.values():
            with contextlib.suppress(ConnectionError):
                while time.monotonic() < deadline:
                    channel.receive()
            channel.close()

    def _turn(self):
        channels = {c.socket: c for c in self._strangers}
        channels |= {c.socket: c for c in self._members.values()}
        waiting = [*channels, *([self._listener] if self._listener else [])]
        ready, _, _ = select.select(waiting, [], [], _TICK_SECONDS)
        for waiting in ready:
            if waiting is self._listener:
                self._strangers.append(Channel(waiting.accept()[0]))
            else:
                self._receive(channels[waiting])
        for rank, channel in list(self._members.items()):
            self._look_after(rank, channel)
        for channel in list(self._strangers):
            if time.monotonic() - channel.last_heard > _SECONDS_TO_SAY_HELLO:
                self._strangers.remove(channel)
                channel.close()
        self._job.on_time(time.monotonic())

    def _look_after(self, rank, channel):
        """Heartbeats, one way and the other."""
        self._send(rank, alive_only=True)
        timeout = self._settings.timeout_seconds
        if rank in self._gone:
            self._lose(rank, self._gone.pop(rank), time.monotonic())
        elif time.monotonic() - channel.last_heard > timeout:
            self._lose(
                rank, f"not heard of for {timeout:g} s", channel.last_heard
            )

    def _receive(self, channel):
        rank = next((r for r, c in self._members.items() if c is channel), None)
        try:
            for message in channel.receive():
                if rank is None:
                    rank = self._greet(channel, message)
                else:
                    self._handle(rank, message)
        except ConnectionError as error:
            if rank is not None:
                self._lose(rank, str(error), time.monotonic())
            else:
                self._strangers.remove(channel)
                channel.close()

    def _greet(self, channel, hello):
        """Takes a launcher in; returns its rank.

        Raises:
            ConnectionError: If it does not belong to this job.
        """
        rank = hello.get("rank")
        ranks = range(len(self._settings.hosts))
        if hello["type"] != "hello" or rank not in ranks:
            raise ConnectionError("no launcher of this job")
        ours = self._settings.shared()
        theirs = hello.get("settings")
        if theirs != ours:
            problem = (
                f"rank 0 was started with {ours}, rank {rank} with {theirs}"
            )
        elif rank in self._members:
            problem = f"rank {rank} is taken: two launchers were given it"
        else:
            self._strangers.remove(channel)
            self._members[rank] = channel
            self._job.on_joined(rank, time.monotonic())
            return rank
        channel.send(type="finish", status=1, message=f"error: {problem}")
        self._say(f"refused a launcher: {problem}")
        raise ConnectionError(problem)

    def _handle(self, rank, message):
        now = time.monotonic()
        kind = message["type"]
        try:
            if kind == "ports":
                ports = [int(port) for port in message["ports"]]
                self._job.on_ports(rank, message["run"], ports, now)
            elif kind == "ended":
                self._job.on_ended(
                    rank,
                    message["run"],
                    message["number"],
                    message["status"],
                    message["lines"],
                    now,
                )
            elif kind == "signal":
                self._job.on_signal(rank, message["number"], now)
            elif kind == "kill":
                self._job.on_kill()
        except (KeyError, TypeError, ValueError) as error:
            raise ConnectionError(f"no launcher: {error!r}") from error

    def _lose(self, rank, reason, last_heard):
        self._members.pop(rank).close()
        self._job.on_lost(rank, reason, last_heard, time.monotonic())

    def _send(self, rank, alive_only=False, **message):
        """Sends; who can't be reached is lost at the next turn."""
        try:
            if alive_only:
                self._members[rank].send_alive(self._settings.heartbeat_seconds)
            else:
                self._members[rank].send(**message)
        except ConnectionError as error:
            self._gone[rank] = str(error)
