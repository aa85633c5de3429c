"""JSON lines over a pair of sockets."""

import contextlib
import socket
import threading
import time

import pytest

from kerasmgpu.job.channel import Channel, Stranger, fields


@pytest.fixture
def pair():
    """A channel and the plain socket at its other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def test_messages_arrive_whole_and_in_order(pair):
    channel, other = pair
    other.sendall(b'{"type": "a", "x": 1}\n{}\n{"type')
    assert channel.receive() == [{"type": "a", "x": 1}]
    other.sendall(b'": "b"}\n')
    assert channel.receive() == [{"type": "b"}]
    channel.send(type="c", text="é\n")
    assert Channel(other).receive() == [{"type": "c", "text": "é\n"}]


def test_one_message_is_read_and_not_a_byte_more(pair):
    channel, other = pair
    other.sendall(b'{"a": 1}\n{"b": 2}\n{"c')
    assert channel.receive_one(1) == {"a": 1}
    assert channel.receive_one(1) == {"b": 2}
    with pytest.raises(TimeoutError):
        channel.receive_one(0.05)
    other.sendall(b'": 3}\n')
    assert channel.receive_one(1) == {"c": 3}


def test_bytes_that_drip_do_not_count_as_a_message(pair):
    channel, other = pair
    ended = threading.Event()

    def drip():
        while not ended.wait(0.05):
            other.sendall(b" ")

    threading.Thread(target=drip, daemon=True).start()
    start = time.monotonic()
    with pytest.raises(TimeoutError, match="it does not answer"):
        channel.receive_one(0.5)
    ended.set()
    assert 0.4 < time.monotonic() - start < 2


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r",
        b"[]",
        b"1",
        b"null",
        b'"text"',
        b"",
        b"{",
        b'{"x": Infinity}',
        b'{"x": -Infinity}',
        b'{"x": NaN}',
        b'{"x": 1e999}',
        b'{"x": ' + b"9" * 50000 + b"}",
        b"[" * 60000,
        b'{"x": ' + b"[" * 60000,
        b'{"x": "\xff"}',
        b'{"x": "\\ud800"}',
        '{"x": 1}'.encode("utf-16"),
    ],
)
@pytest.mark.parametrize("way", ["receive", "receive_one"])
def test_strangers(pair, way, line):
    channel, other = pair
    other.sendall(line + b"\n")
    with pytest.raises(Stranger):
        channel.receive_one(1) if way == "receive_one" else channel.receive()


@pytest.mark.parametrize("way", ["receive", "receive_one"])
def test_a_message_without_an_end_is_a_strangers(pair, way):
    channel, other = pair

    def talk():
        with contextlib.suppress(OSError):
            while True:
                other.sendall(b"x" * 10000)

    threading.Thread(target=talk, daemon=True).start()
    with pytest.raises(Stranger, match="without an end"):
        while True:
            channel.receive_one(5) if way == "receive_one" else (
                channel.receive()
            )
    channel.close()


@pytest.mark.parametrize("way", ["receive", "receive_one"])
def test_the_other_side_is_gone(pair, way):
    channel, other = pair
    assert channel.is_open()
    other.close()
    assert not channel.is_open()
    with pytest.raises(ConnectionError, match="closed"):
        channel.receive_one(1) if way == "receive_one" else channel.receive()


def test_heartbeats_only_after_silence(pair):
    channel, other = pair
    channel.send_alive(60)
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)
    channel.send_alive(0)
    assert other.recv(100) == b"{}\n"


def test_fields_have_the_very_types():
    message = {"index": 1, "text": "a", "list": [1]}
    assert fields(message, index=int, list=list) == [1, [1]]
    assert fields({"message": "a"}, message=str) == ["a"]
    for wrong in {}, {"index": True}, {"index": 1.0}, {"index": None}:
        with pytest.raises(Stranger, match="no int 'index'"):
            fields(wrong, index=int)
