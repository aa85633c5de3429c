"""A port of a job, at which every connection is heard apart. Pure.

Who connects shakes hands (`handshake.py`) and says hello within
`HELLO_SECONDS` in all, in a thread of its own, so that it holds up nobody.
"""

import selectors
import socket
import threading
import time

from absl import logging

from kerasmgpu.job import handshake
from kerasmgpu.job.channel import Channel

HELLO_SECONDS = 5.0
"""Whoever connects and has not said hello so long after is a stranger."""

_MOST_AT_ONCE = 256  # Connections of which each has a thread.


class Entrance:
    """Hears everybody who connects to a port, each in a thread of its own.

    A context manager, which closes it.

    Args:
        server: Listening `socket.socket`, which is closed with this.
        welcome: Function of a new `Channel` and the first message over it,
            called in a thread. If it raises an `OSError`, such as `Stranger`,
            the channel is closed; else that is for whoever keeps it.
        purpose: String, see `handshake.call`.
        token: String that whoever connects must know.
    """

    def __init__(self, server, welcome, purpose, token):
        self._server = server
        self._welcome = welcome
        self._secrets = token, purpose
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._unknown = set()  # Channels over which no hello has come.
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def admit(self, connection):
        """Hears who is at the other end of a connection.

        Args:
            connection: Connected `socket.socket`.
        """
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

    def close(self):
        """Closes the port, and who has not said hello is sent away."""
        self._wake.close()
        self._send_away()  # Else it might wait for a place for the next.
        self._thread.join()
        self._send_away()

    def _send_away(self):
        for channel in list(self._unknown):
            channel.hang_up()

    def _accept(self):
        with (
            self._server,
            self._woken,
            selectors.DefaultSelector() as selector,
        ):
            self._server.setblocking(False)
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while self._woken not in [k.fileobj for k, _ in selector.select()]:
                try:
                    connection, _ = self._server.accept()
                except OSError:  # Gone again, or too many files are open.
                    time.sleep(0.01)
                else:
                    self.admit(connection)

    def _hear(self, channel):
        try:
            end = time.monotonic() + HELLO_SECONDS
            handshake.answer(channel, *self._secrets, HELLO_SECONDS)
            hello = channel.receive_one(end - time.monotonic())
            self._unknown.discard(channel)
            self._welcome(channel, hello)
        except OSError as error:
            logging.debug("kerasmgpu: a stranger was sent away: %s", error)
            channel.close()
        finally:
            self._forget(channel)

    def _forget(self, channel):
        self._unknown.discard(channel)
        self._places.release()
