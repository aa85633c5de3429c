"""The workers of a job meet before TensorFlow starts. Pure.

TensorFlow's engine waits without end for a worker that never comes, and says
of a port that is taken only that it could not start a server. So each worker
first takes its own port for a moment, and all report to the first worker. It
calls each one back at its address, as TensorFlow will, and tells all to go on
when all are there, or what is wrong.
"""

import contextlib
import errno
import json
import selectors
import socket
import time

from kerasmgpu.addresses import listen, split_address
from kerasmgpu.errors import InputError

_PAUSE_SECONDS = 0.2
_HELLO_SECONDS = 2.0  # Whoever connects and says nothing so long is a stranger.
_REPLY_SECONDS = 5.0  # No host that is well takes longer.
_LONGEST_LINE = 2**16

# What comes of talking to something else than a worker that waits.
_STRANGER = (OSError, ValueError, KeyError, TypeError)
_SOMETHING_ELSE = "something else answers there"


def meet(worker, timeout_seconds):
    """Waits until all workers of the job are there.

    The first worker waits so long for the others, and each of these so long
    for the first, which then tells it the seconds that are left.

    Args:
        worker: `cluster.Worker`, this worker's place in the job.
        timeout_seconds: Float, how long to wait.

    Raises:
        InputError: If this worker's port can't be had, two workers have the
            same index or clusters that differ, or some are not there in
            time, whom it names.

    Example:

    ```python
    rendezvous.meet(cluster.from_environment(), timeout_seconds=300)
    ```
    """
    with _own_port(worker) as server:
        if worker.is_first:
            trouble = _gather(worker, server, timeout_seconds)
        else:
            trouble = _report(worker, server, timeout_seconds)
    if trouble is not None:
        raise InputError(trouble)


def _own_port(worker):
    """A server on this worker's port: IPv4 and IPv6, as TensorFlow's is."""
    address = worker.addresses[worker.index]
    _, port = split_address(address)
    try:
        return listen(port, backlog=max(len(worker.addresses), 16))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = (
                "it is in use, by another program or by a worker with the same "
                "index. Give each worker an index of its own, or choose"
            )
        else:
            why = f"{error.strerror}. Choose"
        raise InputError(
            f"Worker {worker.index} can't have port {port} ({address}): {why} "
            "another port."
        ) from None


def _gather(worker, server, timeout_seconds):
    """The first worker's part; returns what is wrong, or `None`."""
    deadline = time.monotonic() + timeout_seconds
    links, trouble = {}, None
    with contextlib.ExitStack() as accepted:
        while len(links) < worker.num_workers - 1 and trouble is None:
            link = _accept(server, deadline)
            links = {i: old for i, old in links.items() if _is_alive(old)}
            if link is None:
                trouble = _missing(worker, links, timeout_seconds)
            else:
                accepted.enter_context(link)
                trouble = _let_in(worker, link, links, deadline)
        for link in links.values():
            _send(link, trouble=trouble)
    return trouble


def _accept(server, deadline):
    """The next connection, `None` if the time is over."""
    with contextlib.suppress(TimeoutError):
        seconds = deadline - time.monotonic()
        if seconds > 0:
            server.settimeout(seconds)
            return server.accept()[0]
    return None


def _let_in(worker, link, links, deadline):
    """Adds who connected to `links`; returns what is wrong, or `None`."""
    try:
        link.settimeout(_HELLO_SECONDS)
        hello = _receive(link)
        index, num_workers = int(hello["worker"]), int(hello["num_workers"])
        there = link.getpeername()[0].removeprefix("::ffff:")
    except _STRANGER:
        link.close()
        return None
    _send(link, seconds=max(deadline - time.monotonic(), 0.0))
    if num_workers != worker.num_workers:
        trouble = (
            f"Worker {index} (on {there}) knows of {num_workers} workers, and "
            f"worker 0 of {worker.num_workers}. Give all the same addresses."
        )
    elif index in links:
        trouble = (
            f"Two workers say that they are worker {index} (the second on "
            f"{there}). Give each an index of its own, 0 to {num_workers - 1}."
        )
    else:
        trouble = _try_address(worker.addresses[index], index, there)
    if trouble is None:
        links[index] = link
    else:
        _send(link, trouble=trouble)
    return trouble


def _try_address(address, index, there):
    """Calls a worker at its port; returns what is wrong, or `None`."""
    try:
        with socket.create_connection(
            split_address(address), _REPLY_SECONDS
        ) as link:
            if _receive(link)["worker"] == index:
                return None
            reason = _SOMETHING_ELSE
    except _STRANGER as error:
        reason = _reason(error)
    return (
        f"Worker {index} runs on {there}, and can't be reached from worker 0 "
        f"at its address {address}: {reason}. Is it right, and does a firewall "
        "let it through?"
    )


def _missing(worker, links, timeout_seconds):
    missing = [
        f"worker {index} ({address})"
        for index, address in enumerate(worker.addresses)
        if index and index not in links
    ]
    return (
        f"Not there after {timeout_seconds:g} s: {', '.join(missing)}. Was it "
        f"started, and can it reach {worker.addresses[0]}?"
    )


def _report(worker, server, timeout_seconds):
    """Every other worker's part; returns what is wrong, or `None`."""
    deadline = time.monotonic() + timeout_seconds
    found = None
    while (seconds := deadline - time.monotonic()) > 0:
        try:
            return _ask(worker, server, seconds)
        except _STRANGER as error:
            if found is None or not isinstance(error, TimeoutError):
                found = error  # The last try may just be out of time.
        time.sleep(_PAUSE_SECONDS)
    return (
        f"Worker 0 ({worker.addresses[0]}) could not be reached for "
        f"{timeout_seconds:g} s: {_reason(found)}. Was it started, and are its "
        "address and this worker's index right?"
    )


def _ask(worker, server, seconds):
    """Reports once; returns the first worker's answer."""
    first = split_address(worker.addresses[0])
    with (
        socket.create_connection(first, min(seconds, _REPLY_SECONDS)) as link,
        selectors.DefaultSelector() as selector,
    ):
        link.settimeout(_REPLY_SECONDS)
        server.settimeout(_REPLY_SECONDS)
        selector.register(link, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ)
        _send(link, worker=worker.index, num_workers=worker.num_workers)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fileobj is server:
                    with server.accept()[0] as caller:  # `_try_address`
                        _send(caller, worker=worker.index)
                    continue
                answer = _receive(link)
                if "trouble" in answer:
                    return answer["trouble"]
                end = time.monotonic() + answer["seconds"] + _REPLY_SECONDS
        raise TimeoutError("it does not answer")


def _send(link, **message):
    with contextlib.suppress(OSError):  # Who reads next notices it.
        link.sendall(json.dumps(message).encode() + b"\n")


def _receive(link):
    """One message, and not a byte more."""
    line = b""
    while not line.endswith(b"\n"):
        byte = link.recv(1)
        if not byte or len(line) == _LONGEST_LINE:
            raise ConnectionError("it closed the connection")
        line += byte
    return json.loads(line)


def _is_alive(link):
    """Whether a worker that waits for its answer is still connected."""
    seconds = link.gettimeout()
    link.setblocking(False)
    try:
        return bool(link.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        link.settimeout(seconds)


def _reason(error):
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return _SOMETHING_ELSE
