"""Who is no part of a job neither ends its meeting nor holds it up."""

import contextlib
import json
import socket
import struct
import time

import pytest

from tests.job.meetings import (
    Claim,
    Meeting,
    addresses,
    connect,
    hello_of,
    last_heard,
    port_of,
    reported,
    server_on,
    shaken,
)

STRANGERS = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "list": b"[]\n",
    "number": b"1\n",
    "null": b'{"worker": null}\n',
    "silent": b"",
    "garbage": b"\xff\x00\x93\n",
    "index": hello_of(99, 3),
    "first": hello_of(0, 3),
    "true": hello_of(True, 3),
    "infinity": hello_of(float("inf"), 3),
    "nested": b"[" * 60000 + b"\n",
    "claim": hello_of(1, 3),
    "empty claim": hello_of(1, 3, nonce=""),
    "short claim": b'{"worker": 1, "num_workers": 2}\n',
    "count": hello_of(1, 7),
    "past the list": hello_of(3, 7),
}


@pytest.mark.nightly(but=16)
@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("early", [1, 2])  # Strangers say that they are 1.
@pytest.mark.parametrize("polite", [False, True])
def test_a_stranger_at_the_port_does_not_count(kind, early, polite):
    places = addresses(3)
    meetings = [Meeting(places, 0), Meeting(places, early)]
    connection_to = shaken if polite else lambda place, _: connect(place)
    with (
        connection_to(places[0], 0) as stranger,
        connection_to(places[early], early) as another,
    ):
        for connection in stranger, another:
            connection.sendall(STRANGERS[kind])
        meetings.append(Meeting(places, 3 - early))
        assert [meeting.answer() for meeting in meetings] == [None] * 3


@pytest.mark.parametrize("nonce", ["", "a guess"])
def test_a_claim_does_not_take_the_place_of_who_is_there(nonce):
    places = addresses(3)
    first = Meeting(places, 0)
    with reported(places, 1) as one:
        claim = Claim(places, 1, num_workers=3, nonce=nonce)
        assert "Two workers have index 1" in claim.answer()
        assert Meeting(places, 2).answer() is None
        assert first.answer() is None
        assert last_heard(one) is None


def test_a_worker_tells_its_number_to_nobody():
    places = addresses(2)
    other = Meeting(places, 1)
    with shaken(places[1], 1) as stranger:
        stranger.sendall(b'{"call": "a guess"}\n')
        assert json.loads(stranger.recv(1000)) == {"worker": 1}
    assert Meeting(places, 0).answer() is None
    assert other.answer() is None


def test_a_scan_of_the_ports_does_no_harm():
    places = addresses(3)
    meetings = [Meeting(places, index) for index in (1, 0)]
    with contextlib.ExitStack() as open_ones:
        for _ in range(20):
            for place in places[:2]:
                connect(place).close()
                open_ones.enter_context(connect(place))  # Says nothing.
                talking = open_ones.enter_context(connect(place))
                talking.sendall(bytes(range(256)))
                cut = connect(place)  # A reset, as of a half-open scan.
                linger = struct.pack("ii", 1, 0)
                cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                cut.close()
        start = time.monotonic()
        meetings.append(Meeting(places, 2))
        assert [meeting.answer() for meeting in meetings] == [None] * 3
        assert time.monotonic() - start < 3


@pytest.mark.parametrize("stale", ["an earlier run's", ""])
def test_a_worker_of_another_job_is_sent_away(stale):
    places = addresses(2)
    first = Meeting(places, 0, token="this run's")
    text = Meeting(places, 1, token=stale).answer()
    assert "belongs to another job, or to an earlier run" in text
    assert Meeting(places, 1, token="this run's").answer() is None
    assert first.answer() is None


def test_a_token_is_told_to_nobody():
    """Not to a stranger at worker 0's address, nor to one that connects."""
    places = addresses(2)
    with server_on(port_of(places[0])) as server:
        other = Meeting(places, 1, timeout_seconds=2, token="the token")
        with server.accept()[0] as link:
            link.settimeout(10)
            hello = link.recv(10000)
            answer = {"nonce": "mine", "proof": "a guess"}
            link.sendall(json.dumps(answer).encode() + b"\n")
            assert link.recv(10000) == b""  # No proof of its own.
    assert json.loads(hello).keys() == {"to", "nonce"}
    assert "the token" not in hello.decode()
    assert "belongs to another job" in other.answer()


def test_who_does_not_know_the_token_is_not_heard():
    places = addresses(2)
    first = Meeting(places, 0, token="the token")
    with connect(places[0]) as stranger:
        stranger.sendall(b'{"to": "worker 0", "nonce": "mine"}\n')
        told = json.loads(stranger.recv(10000))
        assert told.keys() == {"nonce", "proof"}
        # The proof of the one end is none of the other's.
        answer = {"proof": told["proof"]}
        stranger.sendall(json.dumps(answer).encode() + b"\n" + hello_of(1, 2))
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(10000) == b""
    assert Meeting(places, 1, token="the token").answer() is None
    assert first.answer() is None
