"""A process's own times, CPU time and traffic, as lines of JSON."""

import json
import socket
import time


class Record:
    """Appends a line to a file at each moment that is worth one.

    Counts what this process sends over Python's sockets from now on, and what
    it receives.

    Args:
        path: Path of the file.
    """

    def __init__(self, path):
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._messages = self._sent = self._received = 0
        send, receive = socket.socket.sendall, socket.socket.recv

        def counted_send(connection, data, *flags):
            self._messages += 1
            self._sent += len(data)
            return send(connection, data, *flags)

        def counted_receive(connection, size, flags=0):
            data = receive(connection, size, flags)
            if not flags & socket.MSG_PEEK:
                self._received += len(data)
            return data

        socket.socket.sendall = counted_send
        socket.socket.recv = counted_receive

    def note(self, moment):
        """Writes down a moment.

        Args:
            moment: String.
        """
        line = {
            "moment": moment,
            "time": time.monotonic(),  # The same clock in all processes.
            "cpu": time.process_time(),
            "messages": self._messages,
            "sent": self._sent,
            "received": self._received,
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def read(path):
    """The lines of a file: dictionaries by their moments."""
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    return {line["moment"]: line for line in lines}
