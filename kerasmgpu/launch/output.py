"""Shows and logs the workers' output, line by line, with the worker's index."""

import codecs
import collections
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO, TextIO

from kerasmgpu.job import loss
from kerasmgpu.launch.noise import Noise

_COLOURS = (36, 33, 32, 35, 34, 31)  # ANSI: cyan, yellow, green, magenta …
_SECONDS_BETWEEN_UPDATES = 5.0  # Of a progress bar.
_LONGEST_LINE = 65536  # Characters.
_LAST_LINES = 20
_MOST_WAITING = 10000  # Queued items; then workers wait for the terminal.


class Lines:
    r"""Splits a stream of bytes into lines. Pure.

    A progress bar overwrites its line with `"\r"`: only its last text before
    the end of the line is kept, and an update at most every five seconds.

    Args:
        now: Number, the time in seconds.
    """

    def __init__(self, now: float) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._updated = now

    def feed(self, data: bytes, now: float, is_last: bool = False) -> list[str]:
        """Adds bytes; returns the list of lines that they complete."""
        self._rest += self._decoder.decode(data, is_last)
        # The "\n" of a "\r\n" may not have arrived yet.
        *lines, self._rest = re.split(r"\r*\n", self._rest)
        lines = [_as_shown(line) for line in lines]
        shown = self._rest.rstrip("\r")
        if "\r" in shown:
            if now - self._updated >= _SECONDS_BETWEEN_UPDATES:
                self._updated = now
                lines.append(_as_shown(shown))
            # Drops the text that was overwritten.
            self._rest = self._rest[shown.rindex("\r") :]
        if self._rest.strip() and (is_last or len(self._rest) > _LONGEST_LINE):
            lines.append(_as_shown(self._rest.rstrip("\r")))
            self._rest = ""
        return lines


def _as_shown(line: str) -> str:
    return line[line.rfind("\r") + 1 :]


class Terminal:
    """Writes lines to the terminal in a background thread.

    A stopped terminal (Ctrl-S) must not stop the heartbeats. If the terminal is
    closed, the process sends itself SIGHUP.

    Args:
        stream: Text stream for the workers' output. Defaults to `sys.stdout`.
        messages: Text stream for the launcher's messages. Defaults to
            `sys.stderr`.
        environ: Mapping; `NO_COLOR` turns colours off, `FORCE_COLOR` on.

    Attributes:
        reader_is_gone: Whether a stream was a pipe that its reader has closed.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        messages: TextIO | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._stream = stream or sys.stdout
        self._messages = messages or sys.stderr
        self._in_colour = not environ.get("NO_COLOR") and (
            bool(environ.get("FORCE_COLOR")) or self._stream.isatty()
        )
        self._is_closed = False
        self.reader_is_gone = False
        self._waiting: queue.Queue[tuple[TextIO, str] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def show(self, number: int, lines: list[str]) -> None:
        """Queues lines of worker `number`; blocks while the queue is full."""
        prefix = f"[{number}]"
        if self._in_colour:
            colour = _COLOURS[number % len(_COLOURS)]
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        while self._waiting.qsize() > _MOST_WAITING and not self._is_closed:
            time.sleep(0.05)
        text = "".join(f"{prefix} {line}\n" for line in lines)
        self._put(self._stream, text)

    def say(self, message: str) -> None:
        """Queues a message of the launcher."""
        text = "".join(f"launch: {line}\n" for line in message.splitlines())
        self._put(self._messages, text)

    def close(self, seconds: float = 5.0) -> None:
        """Writes the queued lines, for at most `seconds`."""
        self._waiting.put(None)
        self._thread.join(seconds)

    def _put(self, stream: TextIO, text: str) -> None:
        if not self._is_closed:
            self._waiting.put((stream, text))

    def _write(self) -> None:
        while (item := self._waiting.get()) is not None:
            stream, text = item
            try:
                stream.write(text)
                stream.flush()
            except (OSError, ValueError) as error:  # The stream is closed.
                self.reader_is_gone = isinstance(error, BrokenPipeError)
                os.kill(os.getpid(), signal.SIGHUP)
                break
        # Workers must not wait for a closed terminal.
        self._is_closed = True


class WorkerOutput:
    """Reads one worker's output until it ends, in a background thread.

    Args:
        pipe: Binary stream, unbuffered.
        log: Path of a file to append to as well, or `None`.
        environ: Mapping, the worker's environment, see `noise.Noise`.

    Attributes:
        last_lines: Deque of strings, the last lines that were shown.
    """

    def __init__(
        self,
        number: int,
        pipe: IO[bytes],
        terminal: Terminal,
        log: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._noise = Noise(environ)
        self._loss: str | None = None  # The line about a lost worker.
        self._number = number
        self._pipe = pipe
        self._terminal = terminal
        self._log = None if log is None else open(log, "ab", buffering=0)
        self.last_lines = collections.deque[str](maxlen=_LAST_LINES)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> list[str]:
        """Waits at most `seconds` for the end of the output; returns its last lines.

        The line about a lost worker is among them, first if it came long ago.
        """
        self._thread.join(seconds)
        last = list(self.last_lines)
        if self._loss is not None and self._loss not in last:
            last = [self._loss, *last[1:]]
        return last

    def _read(self) -> None:
        lines = Lines(time.monotonic())
        while data := self._pipe.read(65536):
            self._take(lines.feed(data, time.monotonic()))
        self._take(lines.feed(b"", time.monotonic(), is_last=True))
        self._pipe.close()
        if self._log:
            self._log.close()

    def _take(self, lines: list[str]) -> None:
        if not lines:
            return
        self._keep(lines)
        lines = self._noise.without(lines)
        if not lines:
            return
        self.last_lines.extend(lines)
        if self._loss is None:
            said = (line for line in lines if loss.lost_in([line]))
            self._loss = next(said, None)
        self._terminal.show(self._number, lines)

    def _keep(self, lines: list[str]) -> None:
        """Writes to the log; an error such as a full disk only ends the log."""
        if self._log is None:
            return
        try:
            # Unbuffered: nothing is left to write when the file is closed.
            data = "".join(f"{line}\n" for line in lines).encode()
            while data:
                data = data[self._log.write(data) :]
        except OSError as error:
            self._log.close()
            self._log = None
            self._terminal.say(
                f"stopped writing the log of worker {self._number}: {error}"
            )
