"""The guard process of one worker: leaves no orphans, reports the exit status.

A script without imports from the library, in a separate process group:

    python -I -S guard.py SOCKET COMMAND…

The launcher holds the other end of the socket. When it closes, however the
launcher ended, the guard kills its process group: the worker, the worker's
child processes, and itself. When the worker ends, the guard sends its status
and stays alive, so that the group's id is not reused until the launcher has
killed the group. SIGTERM is forwarded to the worker only: its child processes
(data loaders) must live while it saves. SIGCONT follows, since a stopped worker
would not handle SIGTERM.

Works on all systems with process groups, including macOS, unlike `prctl`, which
would also end workers together with the thread that started them.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence


class Guard:
    """Runs a worker, and kills it when the launcher ends."""

    def __init__(self, launcher: socket.socket) -> None:
        self._launcher = launcher
        self._worker: subprocess.Popen[bytes] | None = None
        self._asked_to_end = False

    def run(self, command: Sequence[str]) -> None:
        """Runs the worker, sends its status, and waits to be killed."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        # Unlike SIG_IGN, a handler is not inherited by the worker.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        waiting = threading.Thread(target=self._kill_without_launcher)
        waiting.start()
        try:
            worker = self._worker = subprocess.Popen(command)
        except OSError as error:
            print(f"error: can't run {command[0]}: {error}", flush=True)
            status = 127
        else:
            if self._asked_to_end:
                _ask_to_end(worker)
            status = worker.wait()
        report = {"status": status, "time": time.monotonic()}
        self._launcher.sendall(json.dumps(report).encode())
        waiting.join()

    def _on_terminate(self, *_: object) -> None:
        self._asked_to_end = True
        if self._worker is not None:
            _ask_to_end(self._worker)

    def _kill_without_launcher(self) -> None:
        try:
            while self._launcher.recv(1):
                pass
        finally:
            # The launcher would have deleted this file.
            with contextlib.suppress(KeyError, OSError):
                os.unlink(os.environ["KERASMGPU_JOB_TOKEN_FILE"])
            os.killpg(0, signal.SIGKILL)


def _ask_to_end(worker: "subprocess.Popen[bytes]") -> None:
    for number in (signal.SIGTERM, signal.SIGCONT):
        worker.send_signal(number)


if __name__ == "__main__":
    Guard(socket.socket(fileno=int(sys.argv[1]))).run(sys.argv[2:])
