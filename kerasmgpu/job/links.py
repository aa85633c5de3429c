"""Connections between workers with heartbeats, all served by one thread.

Imports no TensorFlow.
"""

import contextlib
import queue
import select
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from kerasmgpu.job.channel import Channel

BEATS_PER_TIMEOUT = 6
"""Number of heartbeats per time-out."""


class Link:
    """One connection between two workers, with heartbeats both ways.

    Args:
        on_message: Called with each message, a dictionary.
        on_closed: Called once, with the reason, when the peer is lost. It may
            still call `send`: a hung peer reads the message if it wakes up.
    """

    def __init__(
        self,
        channel: Channel,
        on_message: Callable[[dict[str, Any]], None],
        on_closed: Callable[[str], None],
    ) -> None:
        self.channel = channel
        self.on_message = on_message
        self.on_closed = on_closed
        self.is_closed = False

    def send(self, **message: Any) -> None:
        """Sends a message; the serving thread detects a broken connection."""
        try:
            self.channel.send(**message)
        except ConnectionError:
            self.channel.hang_up()

    def close(self) -> None:
        """Closes the connection, without a call of `on_closed`."""
        self.is_closed = True
        self.channel.hang_up()


class Links:
    """Serves links in one thread: sends heartbeats, reads, detects silence.

    The constructor starts the thread, since Python 3.12 and newer start none
    while the interpreter shuts down. Messages must be short: a peer that stops
    reading then times out before its buffer is full, and no send blocks.

    Args:
        timeout_seconds: Number, silence after which a peer is lost.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._beat_seconds = timeout_seconds / BEATS_PER_TIMEOUT
        self._links: set[Link] = set()
        self._new: queue.SimpleQueue[Link | None] = queue.SimpleQueue()
        self._is_ending = False
        self._next_look = time.monotonic()
        self._next_beat = self._next_look + self._beat_seconds
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        threading.Thread(target=self._serve, daemon=True).start()

    def serve(self, link: Link) -> None:
        """Adds a link; may be called from any thread."""
        link.channel.be_patient_for(self._timeout_seconds)
        self._put(link)

    def end(self) -> None:
        """Lets the thread end once all links are closed."""
        self._put(None)

    def _put(self, item: Link | None) -> None:
        self._new.put(item)
        with contextlib.suppress(OSError):  # It is awake, or has ended.
            self._wake.send(b"\n")

    def _serve(self) -> None:
        while self._links or not self._is_ending:
            now = time.monotonic()
            wait = min(self._next_beat, self._next_look) - now
            for key, _ in self._selector.select(max(wait, 0.0)):
                if key.data is None:
                    self._woken.recv(4096)
                    self._take_new()
                else:
                    self._read(key.data)
            now = time.monotonic()
            if now >= self._next_beat:
                self._next_beat = now + self._beat_seconds
                for link in self._links:
                    link.send()
            if now >= self._next_look:
                self._drop_silent(now)
        self._selector.close()
        self._woken.close()
        self._wake.close()

    def _take_new(self) -> None:
        while not self._new.empty():
            link = self._new.get()
            if link is None:
                self._is_ending = True
                continue
            self._links.add(link)
            socket_ = link.channel.socket
            self._selector.register(socket_, selectors.EVENT_READ, link)

    def _read(self, link: Link) -> None:
        try:
            for message in link.channel.receive():
                link.on_message(message)
        except TimeoutError:
            return  # Nothing to read after all.
        except OSError:  # Closed, here or there.
            self._drop(link, "its process has ended")

    def _drop_silent(self, now: float) -> None:
        """Drops silent links; sets the time of the next check."""
        first = now
        for link in list(self._links):
            if now - link.channel.last_heard < self._timeout_seconds:
                first = min(first, link.channel.last_heard)
            elif not _has_data(link.channel.socket):
                # Else this process was suspended, and data have arrived since.
                reason = f"no heartbeat for {self._timeout_seconds:g} s"
                self._drop(link, reason)
        self._next_look = first + self._timeout_seconds

    def _drop(self, link: Link, reason: str) -> None:
        self._links.discard(link)
        self._selector.unregister(link.channel.socket)
        if not link.is_closed:
            link.is_closed = True
            link.on_closed(reason)
        link.channel.close()


def _has_data(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
