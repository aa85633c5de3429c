"""JSON lines between launchers: one object per line, no TLS, nothing run.

What arrives is data: numbers, addresses and texts. Each launcher runs only
the command that it was itself started with.
"""

import json
import time

_LONGEST_MESSAGE = 1 << 20


class Channel:
    """Messages over a connected socket.

    Args:
        connection: Connected `socket.socket`.
    """

    def __init__(self, connection):
        # A peer that takes nothing for so long counts as gone.
        connection.settimeout(5.0)
        self.socket = connection
        self._received = b""
        self.last_heard = time.monotonic()
        self._last_sent = self.last_heard

    def send(self, **message):
        """Sends one object.

        Raises:
            ConnectionError: If the other side is gone.
        """
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ConnectionError(f"can't send: {error}") from error
        self._last_sent = time.monotonic()

    def send_alive(self, seconds):
        """Sends a heartbeat, if nothing was sent for `seconds`."""
        if time.monotonic() - self._last_sent >= seconds:
            self.send(type="alive")

    def receive(self):
        """Reads what there is; blocks unless the socket is readable.

        Returns:
            List of dictionaries, those that are complete, without heartbeats.

        Raises:
            ConnectionError: If the other side is gone, or speaks otherwise.
        """
        try:
            data = self.socket.recv(65536)
        except OSError as error:
            raise ConnectionError(str(error)) from error
        if not data:
            raise ConnectionError("the connection was closed")
        self.last_heard = time.monotonic()
        *lines, self._received = (self._received + data).split(b"\n")
        if len(self._received) > _LONGEST_MESSAGE:
            raise ConnectionError("no launcher: a message without an end")
        messages = [_parsed(line) for line in lines]
        return [m for m in messages if m["type"] != "alive"]

    def close(self):
        """Closes the socket."""
        self.socket.close()


def _parsed(line):
    try:
        message = json.loads(line)
        if isinstance(message["type"], str):
            return message
    except (ValueError, KeyError, TypeError):
        pass  # Told below: a stranger, or another version.
    raise ConnectionError(f"no launcher: it sent {line[:80]!r}")
