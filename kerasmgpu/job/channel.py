"""Messages between the processes of a job: one JSON object per line. Pure.

No TLS, and nothing that arrives is run: it is data, numbers, addresses and
texts. Ports can be reached by others too, a port scan or another job's worker.
So a line has a length and a time limit and must be plain JSON; who connects
says hello within `HELLO_SECONDS` in all, in a thread of its own, so that it
holds up nobody (`Entrance`); and who says anything else is a `Stranger`, whose
connection is closed without a word.
"""

import contextlib
import json
import math
import selectors
import socket
import threading
import time

from absl import logging

HELLO_SECONDS = 5.0
"""Whoever connects and has not said hello so long after is a stranger."""

_LONGEST_HELLO = 1 << 16
_LONGEST_MESSAGE = 1 << 20
_PIECE = 1 << 16  # Bytes to read at once.
_MOST_AT_ONCE = 256  # Connections of which each has a thread.


class Stranger(ConnectionError):
    """Who is no part of this job, by what was said."""


class Channel:
    """Messages over a connected socket.

    An empty object is a heartbeat: it says only that its sender is alive.

    Args:
        connection: Connected `socket.socket`.
        seconds: Number, who says or takes nothing for so long is gone.
    """

    def __init__(self, connection, seconds=5.0):
        self.socket = connection
        self.be_patient_for(seconds)
        self._received = b""
        self._sending = threading.Lock()
        self.last_heard = self._last_sent = time.monotonic()

    def be_patient_for(self, seconds):
        """Who says or takes nothing for so many seconds from now on is gone."""
        self._seconds = seconds
        self.socket.settimeout(seconds)

    def send(self, **message):
        """Sends one object.

        Raises:
            ConnectionError: If the other side is gone.
        """
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self.socket.sendall(line)
        except OSError as error:
            raise ConnectionError(f"can't send: {_reason(error)}") from error
        self._last_sent = time.monotonic()

    def send_alive(self, seconds):
        """Sends a heartbeat, if nothing was sent for `seconds`."""
        if time.monotonic() - self._last_sent >= seconds:
            self.send()

    def receive(self):
        """Reads what there is; waits where there is nothing as yet.

        Returns:
            List of dictionaries, those that are complete, without heartbeats.

        Raises:
            TimeoutError: If nothing comes.
            ConnectionError: If the other side is gone; a `Stranger`, if it
                speaks otherwise.
        """
        *lines, self._received = self._read(_LONGEST_MESSAGE).split(b"\n")
        if len(self._received) >= _LONGEST_MESSAGE:
            raise Stranger("a message without an end")
        return [message for line in lines if (message := _parsed(line))]

    def receive_one(self, seconds):
        """Waits for one message, and reads not a byte more.

        Args:
            seconds: Number, how long to wait for all of it.

        Returns:
            A dictionary.

        Raises:
            TimeoutError: If there is none in time, however many bytes came.
            ConnectionError: See `receive`.
        """
        end = time.monotonic() + seconds
        try:
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                line = self._read(_LONGEST_HELLO, one_line=True)
                if line.endswith(b"\n"):
                    self._received = b""
                    return _parsed(line)
                if len(line) >= _LONGEST_HELLO:
                    raise Stranger("a message without an end")
                self._received = line
        finally:
            with contextlib.suppress(OSError):  # Closed by another thread.
                self.socket.settimeout(self._seconds)
        raise TimeoutError("it does not answer")

    def _read(self, longest, one_line=False):
        """What has been received since the last whole message."""
        try:
            size = min(longest - len(self._received), _PIECE)
            if one_line:
                ahead = self.socket.recv(size, socket.MSG_PEEK)
                size = ahead.find(b"\n") + 1 or len(ahead)
            data = self.socket.recv(size)
        except TimeoutError:
            raise TimeoutError("it does not answer") from None
        except OSError as error:
            raise ConnectionError(_reason(error)) from error
        if not data:
            raise ConnectionError("it closed the connection")
        self.last_heard = time.monotonic()
        return self._received + data

    def is_open(self):
        """Whether the other side has not closed the connection."""
        try:
            self.socket.setblocking(False)
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(self._seconds)

    def hang_up(self):
        """Ends the connection; whichever thread reads it is to close it."""
        with contextlib.suppress(OSError):  # The other side was faster.
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Ends the connection, and gives the socket back."""
        self.hang_up()
        with contextlib.suppress(OSError):
            self.socket.setblocking(False)
            # Unread bytes would reset the connection, and the other side might
            # not get what it was sent last.
            self.socket.recv(_PIECE)
        self.socket.close()


def fields(message, /, **kinds):
    """Takes fields out of a message that somebody sent.

    Args:
        message: Dictionary.
        **kinds: The names of the fields with the type of each.

    Returns:
        List of the values.

    Raises:
        Stranger: If one is missing or not of that very type.

    Example:

    ```python
    worker, reason = fields(message, worker=int, reason=str)
    ```
    """
    for name, kind in kinds.items():
        if type(message.get(name)) is not kind:
            raise Stranger(f"no {kind.__name__} {name!r} in its message")
    return [message[name] for name in kinds]


class Entrance:
    """Hears everybody who connects to a port, each in a thread of its own.

    A context manager, which closes it.

    Args:
        server: Listening `socket.socket`, which is closed with this.
        welcome: Function of a new `Channel` and the first message over it,
            called in a thread. If it raises an `OSError`, such as `Stranger`,
            the channel is closed; else that is for whoever keeps it.
    """

    def __init__(self, server, welcome):
        self._server = server
        self._welcome = welcome
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
            hello = channel.receive_one(HELLO_SECONDS)
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


def _parsed(line):
    """The object of a line, an empty one for a heartbeat.

    Raises:
        Stranger: If it is anything else than an object of plain JSON.
    """
    try:
        message = json.loads(
            line.decode(), parse_constant=_refuse, parse_float=_finite
        )
        # Half a character, as JSON may spell one, can't be shown to anybody.
        json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise Stranger(f"it said {line[:80]!r}")
    return message


def _refuse(constant):
    raise ValueError(constant)


def _finite(text):
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _reason(error):
    return error.strerror or str(error)
