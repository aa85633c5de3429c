"""JSON lines over a pair of sockets."""

import socket

import pytest

from kerasmgpu.launch.messages import Channel


@pytest.fixture
def pair():
    """A channel and the plain socket at its other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def test_messages_arrive_whole_and_in_order(pair):
    channel, other = pair
    other.sendall(b'{"type": "a", "x": 1}\n{"type": "alive"}\n{"type')
    assert channel.receive() == [{"type": "a", "x": 1}]
    other.sendall(b'": "b"}\n')
    assert channel.receive() == [{"type": "b"}]
    channel.send(type="c", text="é\n")
    assert Channel(other).receive() == [{"type": "c", "text": "é\n"}]


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n", b"[]\n", b'{"x": 1}\n', b'{"type": 1}\n']
)
def test_strangers(pair, data):
    channel, other = pair
    other.sendall(data)
    with pytest.raises(ConnectionError, match="no launcher"):
        channel.receive()


def test_the_other_side_is_gone(pair):
    channel, other = pair
    other.close()
    with pytest.raises(ConnectionError, match="closed"):
        channel.receive()


def test_heartbeats_only_after_silence(pair):
    channel, other = pair
    channel.send_alive(60)
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)
    channel.send_alive(0)
    assert other.recv(100) == b'{"type": "alive"}\n'
