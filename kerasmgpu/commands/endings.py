"""Ends a command without a traceback: on Ctrl-C, and when its reader has gone.

    kerasmgpu polynomial | head -2

closes the pipe behind the second line: the command ends with status 141, as if
the signal SIGPIPE had ended it, and says nothing. (The signal itself stays
ignored, which sockets need.)
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator

EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_READER_GONE = 128 + signal.SIGPIPE


@contextlib.contextmanager
def without_traceback() -> Iterator[None]:
    """Context of a command, from its first line to its last."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    except KeyboardInterrupt:
        with contextlib.suppress(BrokenPipeError):
            print("interrupted", file=sys.stderr, flush=True)
        sys.exit(EXIT_INTERRUPTED)
    except BaseException as error:
        if not is_reader_gone(error):
            raise
        _discard_output()
        sys.exit(EXIT_READER_GONE)


def is_reader_gone(error: BaseException) -> bool:
    """Whether an error is, or comes from, writing to a closed pipe.

    That of standard output or standard error: sockets raise the same error.
    rich has already replaced the pipe when it raises `SystemExit(1)` (rich 13.8
    to 15).
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BrokenPipeError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return False
    return isinstance(error, SystemExit) or any(map(_is_closed, (1, 2)))


def _is_closed(descriptor: int) -> bool:
    """Whether a pipe has no reader."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _discard_output() -> None:
    """Lets Python write what is buffered to nowhere as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        if _is_closed(descriptor):
            os.dup2(nowhere, descriptor)
