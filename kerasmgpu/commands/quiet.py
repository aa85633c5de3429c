"""Commands say what they do, and not how TensorFlow's C++ starts.

TensorFlow and CUDA write lines to standard error while they start, some before
anything can be set that stops them ("Could not find cuda drivers on your
machine"). A process of its own stands between this one and the terminal, leaves
these lines out and passes on everything else, also if this process crashes.
"""

import atexit
import logging
import os
import re
import signal
import sys
import time

_LONGEST_WAIT_SECONDS = 2.0

_NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\)"
    # Level, date and file of a line of C++; errors and worse are kept …
    rb"|[IW]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]"
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] "
    # … but for those of a machine without a GPU, which is no error.
    rb"|.*failed call to cuInit"
    rb"|.*Unable to register cu(FFT|DNN|BLAS) factory"
    rb"|To enable the following instructions: .*rebuild TensorFlow"
)


def start_unless_asked():
    """Leaves out all of TensorFlow's chatter, before it is imported.

    Whoever wants it sets `TF_CPP_MIN_LOG_LEVEL`: then nothing is left out.
    """
    if "TF_CPP_MIN_LOG_LEVEL" not in os.environ:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
        logging.getLogger("tensorflow").setLevel(logging.WARNING)
        start()


def start():
    """Leaves TensorFlow's start-up lines out of standard error from now on."""
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


def _pass_on(read):
    """The other process: ends when nobody can write to it any more."""
    # Ctrl-C is for the command, whose last words are still to come.
    os.dup2(read, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.close(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    rest = b""
    while data := os.read(0, 2**16):
        *lines, rest = (rest + data).split(b"\n")
        kept = [line + b"\n" for line in lines if not _NOISE.match(line)]
        # What is not yet a line may be a question, or a bar that moves.
        if rest and not _may_be_noise(rest):
            kept.append(rest)
            rest = b""
        _write(b"".join(kept))
    _write(b"" if _NOISE.match(rest) else rest)
    os._exit(0)


def _may_be_noise(text):
    """Whether a line that begins so may still turn out to be noise."""
    return text[:1] in b"EIW0123456789T" or b"cu" in text


def _write(data):
    while data:
        try:
            data = data[os.write(2, data) :]
        except OSError:  # Nobody reads any more.
            os._exit(0)


def _end(child, terminal, owner):
    if os.getpid() != owner:
        return
    os.dup2(terminal, 2)  # Closes the other process's writer …
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while time.monotonic() < deadline:  # … unless a child of ours has it, too.
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return
        time.sleep(0.002)
