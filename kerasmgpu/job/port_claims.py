"""A job's claim to a port by which its workers find one another.

Worker 0 listens only until all workers have met; the claim lasts as long as its
process, as PyTorch's store at `MASTER_PORT` does. It is a socket in Linux's
abstract namespace: one per network namespace, as ports are, and gone with the
process. Other systems have none, and claims succeed there. Imports no
TensorFlow.
"""

import os
import socket
import struct
import sys

_held: dict[int, socket.socket] = {}


def claim(port: int) -> bool:
    """Claims a port for the life of this process.

    Returns `False` if another process has claimed it.
    """
    if port in _held or not sys.platform.startswith("linux"):
        return True
    claimed = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claimed.bind(_name(port))
        claimed.listen()
    except OSError:
        claimed.close()
        return False
    if not _held:
        os.register_at_fork(after_in_child=_give_up)
    _held[port] = claimed
    return True


def _give_up() -> None:
    """Ends the claims of a child process, which may outlive its parent."""
    while _held:
        _held.popitem()[1].close()


def holder(port: int) -> int | None:
    """Returns the id of the process that has claimed a port; `None` if none has.

    It is 0 if the process is in another namespace of ids.
    """
    if not sys.platform.startswith("linux"):
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        try:
            caller.connect(_name(port))
        except BlockingIOError:  # Others ask, too: its queue is full.
            return 0
        except OSError:
            return None
        pid, *_ = struct.unpack(
            "3i",
            caller.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            ),
        )
        return int(pid)


def _name(port: int) -> str:
    return f"\0kerasmgpu: job at port {port}"
