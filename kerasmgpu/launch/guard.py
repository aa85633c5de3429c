"""Stands between the launcher and one worker: no orphan, no lost status.

Run as a script, apart from the library, in a process group of its own:

    python -I -S guard.py SOCKET COMMAND…

The other end of the socket is the launcher's. When that closes, whatever
ended the launcher, the guard kills the whole group: the worker, what the
worker started, and itself. When the worker ends, the guard sends its status
and stays, so that the group's number belongs to nobody else until the
launcher has killed it. SIGTERM goes on to the worker, and to it alone: what
helps the worker (data loaders) must live while it saves. SIGCONT follows, for
a worker that is stopped would not see it.

Works wherever there are process groups, macOS included, which `prctl` does
not; that would also end workers with the thread that started them.
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


class Guard:
    """The worker of this guard, and the socket to the launcher.

    Args:
        launcher: Connected `socket.socket`.
    """

    def __init__(self, launcher):
        self._launcher = launcher
        self._worker = None
        self._asked_to_end = False

    def run(self, command):
        """Runs the worker, tells how it ended, and waits to be killed."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        # A handler, unlike "ignore", is not inherited by the worker.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        waiting = threading.Thread(target=self._kill_without_launcher)
        waiting.start()
        try:
            self._worker = subprocess.Popen(command)
        except OSError as error:
            print(f"error: can't run {command[0]}: {error}", flush=True)
            status = 127
        else:
            if self._asked_to_end:
                self._ask_to_end()
            status = self._worker.wait()
        report = {"status": status, "time": time.monotonic()}
        self._launcher.sendall(json.dumps(report).encode())
        waiting.join()

    def _on_terminate(self, *_):
        self._asked_to_end = True
        if self._worker is not None:
            self._ask_to_end()

    def _ask_to_end(self):
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._worker.send_signal(number)

    def _kill_without_launcher(self):
        try:
            while self._launcher.recv(1):
                pass
        finally:
            # What the launcher would have deleted.
            with contextlib.suppress(KeyError, OSError):
                os.unlink(os.environ["KERASMGPU_JOB_TOKEN_FILE"])
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    Guard(socket.socket(fileno=int(sys.argv[1]))).run(sys.argv[2:])
