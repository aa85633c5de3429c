"""Filters TensorFlow's start-up lines out of standard error.

TensorFlow and CUDA write lines to standard error while they start, some of them
regardless of any setting ("Could not find cuda drivers on your machine"). A
filter process between this process and the terminal drops these lines and
passes on everything else, even if this process crashes.
"""

import atexit
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

_LONGEST_WAIT_SECONDS = 2.0

SHOW_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
"""Environment variable; 0 and 1 ask for TensorFlow's lines."""


def written_by(levels: str) -> bytes:
    """Returns a pattern of C++ log lines' beginnings, to the end of the level.

    Args:
        levels: String, letters: of I, W, E and F.
    """
    level = b"[" + levels.encode() + b"]"
    return (
        rb"(?:"
        + level
        + rb"\d{4} \d\d:\d\d:\d+\.\d+ +\d+ (?=\S+\.(?:cc|h):\d+\])"
        rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: " + level + rb" )"
    )


OF_START = (
    rb"WARNING: All log messages before absl::InitializeLog\(\)"
    # About a missing GPU, which is not an error, and about a compiled program,
    # which TensorFlow tries to read as text first.
    rb"|.*failed call to cuInit"
    rb"|.*Error parsing text-format tensorflow\.XlaSerializedCacheEntry"
    rb"|.*Unable to register cu(?:FFT|DNN|BLAS) factory"
    rb"|To enable the following instructions: .*rebuild TensorFlow"
)
"""Pattern of lines of TensorFlow's start that mean nothing at any level."""

_NOISE = re.compile(written_by("IW") + rb"|" + OF_START)


sets_variable = False
"""Whether `SHOW_VARIABLE` is not the user's."""


def is_asked_for(environ: Mapping[str, str]) -> bool:
    """Whether the user has asked for TensorFlow's lines."""
    return environ.get(SHOW_VARIABLE, "") in ("0", "1")


def start_unless_asked() -> None:
    """Hides TensorFlow's start-up lines, and its C++ logs below errors.

    Hides nothing if `TF_CPP_MIN_LOG_LEVEL` asks for them: 0 or 1.

    Call it before TensorFlow is imported.
    """
    global sets_variable
    sets_variable = SHOW_VARIABLE not in os.environ
    os.environ.setdefault(SHOW_VARIABLE, "2")
    if not is_asked_for(os.environ):
        logging.getLogger("tensorflow").setLevel(logging.WARNING)
        start()


def start() -> None:
    """Starts the filter process on standard error."""
    sys.stderr.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        _pass_on(read)
    os.close(read)
    terminal = os.dup(2)
    os.dup2(write, 2)
    os.close(write)
    atexit.register(_end, child, terminal, os.getpid())


def _pass_on(read: int) -> NoReturn:
    """Runs the filter process; ends when the pipe has no writer left."""
    # Ctrl-C is for the command, whose last lines must still be passed on.
    os.dup2(read, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.close(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    rest = b""
    while data := os.read(0, 2**16):
        *lines, rest = (rest + data).split(b"\n")
        kept = [line + b"\n" for line in lines if not _NOISE.match(line)]
        # An incomplete line may be a prompt or a progress bar.
        if rest and not _may_be_noise(rest):
            kept.append(rest)
            rest = b""
        _write(b"".join(kept))
    _write(b"" if _NOISE.match(rest) else rest)
    os._exit(0)


def _may_be_noise(text: bytes) -> bool:
    """Whether an incomplete line may still match `_NOISE`."""
    return text[:1] in b"EIW0123456789T" or b"cu" in text


def _write(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:  # The reader has closed the pipe.
            os._exit(0)


def _end(child: int, terminal: int, owner: int) -> None:
    if os.getpid() != owner:
        return
    os.dup2(terminal, 2)  # Closes the filter's pipe, so that it ends …
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:  # … unless a child has it open, too.
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return
        time.sleep(0.002)
