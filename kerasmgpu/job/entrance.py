"""A listening port of a job, with a thread per new connection.

Every connection must complete the handshake (`handshake.py`) and send its hello
within `HELLO_SECONDS`, in a separate thread, so that it blocks no other
connection. Imports no TensorFlow.
"""

import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from absl import logging

from kerasmgpu.job import handshake
from kerasmgpu.job.channel import Channel

HELLO_SECONDS = 5.0
"""Time-out of the handshake and the hello together."""

_MOST_AT_ONCE = 256  # Connections without a hello; each has a thread.


class Entrance:
    """Accepts and authenticates connections, each in a separate thread.

    A context manager that closes the port on exit.

    Args:
        server: Listening `socket.socket`; closed with this object.
        welcome: Function of a new `Channel` and its first message, called in a
            thread. If it raises an `OSError`, such as `Stranger`, the channel
            is closed here; otherwise `welcome` must have it closed later.
        purpose: String, see `handshake.call`.
        token: String, shared secret of the connections.
    """

    def __init__(
        self,
        server: socket.socket,
        welcome: Callable[[Channel, dict[str, Any]], None],
        purpose: str,
        token: str,
    ) -> None:
        self._server = server
        self._welcome = welcome
        self._secrets = token, purpose
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._unknown = set()  # Channels over which no hello has come.
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Entrance":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def admit(self, connection: socket.socket) -> None:
        """Starts the thread that authenticates a connection."""
        channel = Channel(connection)
        self._places.acquire()
        self._unknown.add(channel)
        try:
            threading.Thread(
                target=self._hear, args=[channel], daemon=True
            ).start()
        except RuntimeError:  # No more threads.
            self._forget(channel)
            channel.close()

    def close(self) -> None:
        """Closes the port, and all connections without a hello."""
        self._wake.close()
        self._send_away()  # Frees places: `admit` may be waiting for one.
        self._thread.join()
        self._send_away()

    def _send_away(self) -> None:
        for channel in list(self._unknown):
            channel.hang_up()

    def _accept(self) -> None:
        with self._server, self._woken, selectors.DefaultSelector() as selector:
            self._server.setblocking(False)
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while self._woken not in [k.fileobj for k, _ in selector.select()]:
                try:
                    connection, _ = self._server.accept()
                except OSError:  # Already closed, or too many open files.
                    time.sleep(0.01)
                else:
                    self.admit(connection)

    def _hear(self, channel: Channel) -> None:
        try:
            end = time.monotonic() + HELLO_SECONDS
            handshake.answer(channel, *self._secrets, HELLO_SECONDS)
            hello = channel.receive_one(end - time.monotonic())
            self._unknown.discard(channel)
            self._welcome(channel, hello)
        except OSError as error:
            logging.debug("kerasmgpu: refused a connection: %s", error)
            channel.close()
        finally:
            self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        self._unknown.discard(channel)
        self._places.release()
