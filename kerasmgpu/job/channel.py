"""Messages between the processes of a job: one JSON object per line. Pure.

No TLS, and nothing that arrives is run: it is data, numbers, addresses and
texts. Ports can be reached by others too, a port scan or another job's worker.
So a line has a length and a time limit and must be plain JSON, and who says
anything else is a `Stranger`, whose connection is closed without a word.
"""

import contextlib
import json
import math
import socket
import threading
import time

_LONGEST_HELLO = 1 << 16
_LONGEST_MESSAGE = 1 << 20
_PIECE = 1 << 16  # Bytes to read at once.


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
