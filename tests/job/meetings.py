"""Workers that meet, in threads of a test, and others that say they are some."""

import contextlib
import json
import socket
import threading
import time

from kerasmgpu.errors import InputError
from kerasmgpu.job import handshake, ports, rendezvous
from kerasmgpu.job.channel import Channel
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.entrance import Entrance


def addresses(count, host="127.0.0.1"):
    return tuple(f"{host}:{port}" for port in ports.free(count))


def port_of(address):
    return int(address.rpartition(":")[2])


def server_on(port):
    server = socket.create_server(("", port))
    server.settimeout(10)
    return server


def connect(address):
    """A connection to that port, once somebody listens there."""
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port_of(address)), 5)
        assert time.monotonic() < deadline


def shaken(address, index=0, token=""):
    """A connection to that worker's port, after the handshake."""
    link = connect(address)
    handshake.call(Channel(link), token, f"worker {index}", 5)
    link.settimeout(10)
    return link


class Meeting(threading.Thread):
    """A worker in a thread; `answer()` is what its meeting raised, or `None`.

    `own` are the GPUs that it is to use.
    """

    def __init__(self, places, index, timeout_seconds=10, token="", gpus=()):
        super().__init__(daemon=True)
        worker = Worker(places, index)
        self._arguments = worker, timeout_seconds, token, gpus
        self.own = None
        self._raised = None
        self.start()

    def run(self):
        try:
            self.own = rendezvous.meet(*self._arguments)
        except InputError as error:
            self._raised = str(error)

    def answer(self):
        self.join(20)
        assert not self.is_alive()
        return self._raised


def hello_of(index, num_workers, **changes):
    """What a worker says first, as a line."""
    hello = {
        "worker": index,
        "num_workers": num_workers,
        "nonce": "drawn at random",
        "addresses": "a digest of the list",
        **changes,
    }
    return json.dumps(hello).encode() + b"\n"


@contextlib.contextmanager
def reported(places, index, token="", **changes):
    """A worker that has reported to the first, and waits for its answer."""
    called = threading.Event()

    def answer(channel, call):
        is_own = call["call"] == "drawn at random"
        channel.send(
            worker=index, **({"nonce": call["call"]} if is_own else {})
        )
        channel.close()
        called.set()

    with (
        Entrance(
            server_on(port_of(places[index])), answer, f"worker {index}", token
        ),
        shaken(places[0], token=token) as link,
    ):
        link.sendall(hello_of(index, len(places), **changes))
        assert called.wait(10)
        yield link


class Claim(threading.Thread):
    """Says that it is a worker, as one on another host would; has no port."""

    def __init__(self, places, index, token="", **changes):
        super().__init__(daemon=True)
        self._link = shaken(places[0], token=token)
        self._link.sendall(hello_of(index, **changes))
        self._answer = None
        self.start()

    def run(self):
        with self._link:
            self._answer = last_heard(self._link)

    def answer(self):
        self.join(20)
        return self._answer


def last_heard(link):
    """What is wrong, by the last message until the connection is closed."""
    heard = b""
    while data := link.recv(1000):
        heard += data
    return json.loads(heard.splitlines()[-1])["trouble"]
