"""Links: heartbeats and messages of many connections in one thread."""

import queue
import socket
import threading
import time

import pytest

from kerasmgpu.job.channel import Channel
from kerasmgpu.job.links import Link, Links


@pytest.fixture
def links():
    served = Links(0.4)
    yield served
    served.end()


def linked(links):
    """A served link: its peer's channel, what it heard, why it was closed."""
    ours, theirs = socket.socketpair()
    heard, closed = queue.Queue(), queue.Queue()
    link = Link(Channel(ours), heard.put, closed.put)
    links.serve(link)
    return link, Channel(theirs), heard, closed


def test_many_links_need_one_thread_which_ends_with_them():
    before = threading.active_count()
    links = Links(5)
    all_linked = [linked(links) for _ in range(20)]
    for number, (_, peer, heard, _) in enumerate(all_linked):
        peer.send(number=number)
        assert heard.get(timeout=5) == {"number": number}
    assert threading.active_count() == before + 1
    links.end()
    for link, *_ in all_linked:
        link.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert all(closed.empty() for *_, closed in all_linked)


def test_silence_loses_that_link_only(links):
    _, silent, _, silent_closed = linked(links)
    _, beating, _, beating_closed = linked(links)
    start = time.monotonic()
    while silent_closed.empty() and time.monotonic() < start + 5:
        beating.send()
        time.sleep(0.05)
    assert 0.35 < time.monotonic() - start < 5
    assert silent_closed.get() == "no heartbeat for 0.4 s"
    assert beating_closed.empty()
    assert beating.receive() == []  # Heartbeats.


def test_a_process_that_was_suspended_reads_before_it_loses(links):
    _, peer, _, closed = linked(links)
    busy, busy_peer, _, _ = linked(links)
    busy.on_message = lambda message: time.sleep(0.6)  # Holds up the thread.
    busy_peer.send(wait=True)
    time.sleep(0.3)
    peer.send()
    time.sleep(0.4)
    assert closed.empty()


def test_a_message_of_another_kind_loses_the_link(links):
    _, peer, _, closed = linked(links)
    peer.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert closed.get(timeout=5) == "its process has ended"
