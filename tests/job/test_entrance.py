"""Strangers at a port of a job, in threads of a test."""

import contextlib
import json
import queue
import socket
import time

import pytest

from kerasmgpu.job import entrance as entrances
from kerasmgpu.job import handshake
from kerasmgpu.job.addresses import listen
from kerasmgpu.job.channel import Channel, fields
from kerasmgpu.job.entrance import Entrance

SECRET = "the party", "the password"


class Guests:
    """An entrance that lets in who says `{"name": …}`."""

    def __init__(self):
        self.names = queue.Queue()
        server = listen(0)
        self.port = server.getsockname()[1]
        self.entrance = Entrance(server, self._welcome, *SECRET)

    def _welcome(self, channel, hello):
        self.names.put((channel, *fields(hello, name=str)))

    def connect(self):
        return socket.create_connection(("localhost", self.port), 10)

    def shaken(self):
        """A connection after the handshake."""
        link = self.connect()
        handshake.call(Channel(link), *reversed(SECRET), 5)
        return link

    def is_told(self, name):
        """Whether somebody new is let in at once."""
        with self.shaken() as link:
            link.sendall(json.dumps({"name": name}).encode() + b"\n")
            return self.names.get(timeout=2)[1] == name


@pytest.fixture
def guests():
    guests = Guests()
    with guests.entrance:
        yield guests


@pytest.mark.slow
def test_who_drips_holds_up_nobody_and_is_dropped_in_time(guests):
    start = time.monotonic()
    with guests.connect() as dripping, guests.connect() as silent:
        assert guests.is_told("one")
        assert time.monotonic() - start < 2
        silent.settimeout(10)
        with contextlib.suppress(ConnectionError):
            while True:
                dripping.sendall(b" ")
                dripping.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    if not dripping.recv(1):
                        break
                assert time.monotonic() - start < 8
        with contextlib.suppress(ConnectionError):
            assert silent.recv(1) == b""
    assert 4.5 < time.monotonic() - start < 8
    assert guests.is_told("two")


@pytest.mark.parametrize(
    "said", [b"1\n", b"{}\n", b'{"name": 1}\n', b"GET / HTTP/1.1\r\n\r\n"]
)
@pytest.mark.parametrize("knows_token", [False, True])
def test_who_says_something_else_is_sent_away_at_once(
    guests, said, knows_token
):
    with guests.shaken() if knows_token else guests.connect() as stranger:
        stranger.sendall(said)
        stranger.settimeout(2)
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert guests.is_told("one")
    assert guests.names.empty()


def test_many_silent_ones_only_make_others_wait(guests, monkeypatch):
    monkeypatch.setattr(entrances, "HELLO_SECONDS", 0.5)
    with contextlib.ExitStack() as silent:
        for _ in range(entrances._MOST_AT_ONCE + 5):
            silent.enter_context(guests.connect())
        assert guests.is_told("one")


def test_a_closed_entrance_is_no_port_any_more(guests):
    with guests.connect() as silent:
        assert guests.is_told("one")
        guests.entrance.close()
        guests.entrance.close()
        silent.settimeout(2)
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
        listen(guests.port).close()
        with pytest.raises(ConnectionRefusedError):
            guests.connect()


def test_who_was_let_in_stays_when_the_entrance_closes(guests):
    with guests.shaken() as link:
        link.sendall(b'{"name": "one"}\n')
        channel, _ = guests.names.get(timeout=2)
        guests.entrance.close()
        channel.send(still="here")
        assert link.recv(100) == b'{"still": "here"}\n'
        channel.close()
