"""Records a process's times, CPU time and traffic as lines of JSON."""

import json
import socket
import time


class Record:
    """Appends a line to a file per recorded moment.

    From its creation on, counts the bytes that this process sends and receives
    over Python's sockets.

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
        """Records a moment.

        Args:
            moment: String, its name.
        """
        line = {
            "moment": moment,
            "time": time.monotonic(),  # One clock for all processes.
            "cpu": time.process_time(),
            "messages": self._messages,
            "sent": self._sent,
            "received": self._received,
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def read(path):
    """Returns the lines of a file as dictionaries, by moment."""
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    return {line["moment"]: line for line in lines}
