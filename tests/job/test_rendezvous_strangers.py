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
    reported,
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


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("early", [1, 2])  # Strangers say that they are 1.
def test_a_stranger_at_the_port_does_not_count(kind, early):
    places = addresses(3)
    meetings = [Meeting(places, 0), Meeting(places, early)]
    with connect(places[0]) as stranger, connect(places[early]) as another:
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
        assert "Two workers say that they are worker 1" in claim.answer()
        assert Meeting(places, 2).answer() is None
        assert first.answer() is None
        assert last_heard(one) is None


def test_a_worker_tells_its_number_to_nobody():
    places = addresses(2)
    other = Meeting(places, 1)
    with connect(places[1]) as stranger:
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


def test_a_worker_of_another_job_is_sent_away():
    places = addresses(2)
    first = Meeting(places, 0, token="this run's")
    stale = Claim(places, 1, num_workers=2, token="an earlier run's")
    assert "is of another job, or of an earlier run" in stale.answer()
    assert Meeting(places, 1, token="this run's").answer() is None
    assert first.answer() is None
