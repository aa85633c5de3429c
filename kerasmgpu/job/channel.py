"""Messages between the processes of a job: one JSON object per line.

No TLS, and received data is never executed. Other programs can reach the ports,
such as a port scan or another job's worker. So a line has limits of length and
time and must be plain JSON; anything else raises `Stranger`, and the connection
is closed without a reply. Imports no TensorFlow.
"""

import contextlib
import json
import math
import socket
import threading
import time
from typing import Any

_LONGEST_HELLO = 1 << 16
_LONGEST_MESSAGE = 1 << 20
_SHORTEST_WAIT_SECONDS = 0.001  # 0 would make a socket non-blocking.
_PIECE = 1 << 16  # Bytes to read at once.


class Stranger(ConnectionError):
    """Raised when a message shows that its sender is no part of this job."""


class Channel:
    """Messages over a connected socket.

    An empty object is a heartbeat.

    Args:
        seconds: Number, time-out of one send or receive.
    """

    def __init__(self, connection: socket.socket, seconds: float = 5.0) -> None:
        self.socket = connection
        self.be_patient_for(seconds)
        self._received = b""
        self._sending = threading.Lock()
        self.last_heard = self._last_sent = time.monotonic()

    def be_patient_for(self, seconds: float) -> None:
        """Sets the time-out of a send or receive, in seconds."""
        self._seconds = seconds
        self.socket.settimeout(seconds)

    def send(self, **message: Any) -> None:
        """Sends one object.

        Raises:
            ConnectionError: If the connection is closed or times out.
        """
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self.socket.sendall(line)
        except OSError as error:
            raise ConnectionError(f"can't send: {_reason(error)}") from error
        self._last_sent = time.monotonic()

    def send_alive(self, seconds: float) -> None:
        """Sends a heartbeat, if nothing was sent for `seconds`."""
        if time.monotonic() - self._last_sent >= seconds:
            self.send()

    def receive(self) -> list[dict[str, Any]]:
        """Reads available data, or waits for some.

        Returns:
            List of the complete messages as dictionaries, without heartbeats.

        Raises:
            TimeoutError: If nothing arrives in time.
            ConnectionError: If the connection is closed; a `Stranger`, if it
                gets anything but messages.
        """
        *lines, self._received = self._read(_LONGEST_MESSAGE).split(b"\n")
        if len(self._received) >= _LONGEST_MESSAGE:
            raise Stranger("a message without an end")
        return [message for line in lines if (message := _parsed(line))]

    def receive_one(self, seconds: float) -> dict[str, Any]:
        """Waits for one message; leaves later bytes in the socket.

        Args:
            seconds: Number, time-out for the complete message.

        Raises:
            TimeoutError: If the message is not complete in time.
            ConnectionError: See `receive`.
        """
        end = time.monotonic() + seconds
        left = seconds
        try:
            while True:
                # Reads once more after the time-out: a process that was
                # suspended finds what has arrived in the meantime.
                self.socket.settimeout(max(left, _SHORTEST_WAIT_SECONDS))
                line = self._read(_LONGEST_HELLO, one_line=True)
                if line.endswith(b"\n"):
                    self._received = b""
                    return _parsed(line)
                if len(line) >= _LONGEST_HELLO:
                    raise Stranger("a message without an end")
                self._received = line
                if left <= 0:
                    raise TimeoutError("it does not answer")
                left = end - time.monotonic()
        finally:
            with contextlib.suppress(OSError):  # Closed by another thread.
                self.socket.settimeout(self._seconds)

    def _read(self, longest: int, one_line: bool = False) -> bytes:
        """Receives once; returns the data since the last complete message.

        Args:
            longest: Integer, most bytes of the result.
            one_line: Boolean, whether to leave bytes after a newline unread.
        """
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

    def is_open(self) -> bool:
        """Whether the peer has not closed the connection."""
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

    def hang_up(self) -> None:
        """Shuts the connection down; the thread that reads it must close it."""
        with contextlib.suppress(OSError):  # The peer was faster.
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Shuts the connection down and closes the socket."""
        self.hang_up()
        with contextlib.suppress(OSError):
            self.socket.setblocking(False)
            # Closing with unread bytes would reset the connection, and the
            # peer might lose the last message.
            self.socket.recv(_PIECE)
        self.socket.close()


def fields(message: dict[str, Any], /, **kinds: type) -> list[Any]:
    """Returns fields of a received message, after checking their types.

    Args:
        **kinds: Type of each field, by name.

    Returns:
        List of the values.

    Raises:
        Stranger: If a field is missing or not of exactly that type.

    Example:

    ```python
    worker, reason = fields(message, worker=int, reason=str)
    ```
    """
    for name, kind in kinds.items():
        if type(message.get(name)) is not kind:
            raise Stranger(f"no {kind.__name__} {name!r} in its message")
    return [message[name] for name in kinds]


def _parsed(line: bytes) -> dict[str, Any]:
    """Parses the JSON object of a line; it is empty for a heartbeat.

    Raises:
        Stranger: If it is anything but an object of plain JSON.
    """
    try:
        message = json.loads(
            line.decode(), parse_constant=_refuse, parse_float=_finite
        )
        # Refuses lone surrogates, which JSON can escape: they can't be printed.
        json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise Stranger(f"it said {line[:80]!r}")
    return message


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
