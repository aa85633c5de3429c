"""What the workers of a job say and do to meet, to lose one and to end.

Counts, not seconds: twice as many workers may cost twice as much.
"""

import collections
import contextlib
import pathlib
import socket
import sys
import threading
import time

import pytest

from kerasmgpu import job
from kerasmgpu.job import cluster
from kerasmgpu.job.channel import Channel
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.watch import FirstWorker, OtherWorker
from tests.job.meetings import Meeting, addresses, reported

FOLDER = str(pathlib.Path(job.__file__).parent)
SIZES = (4, 8, 16)


class Counter:
    """Counts messages, bytes and calls of functions in all new threads."""

    def __init__(self, monkeypatch):
        self.counts = collections.Counter()
        send = socket.socket.sendall

        def counted(connection, data, *flags):
            self.counts["messages"] += 1
            self.counts["bytes"] += len(data)
            return send(connection, data, *flags)

        monkeypatch.setattr(socket.socket, "sendall", counted)

    def __enter__(self):
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame, event, _):
        if event in ("call", "c_call"):
            if frame.f_code.co_filename.startswith(FOLDER):
                self.counts["calls"] += 1


def meet(size):
    """The first worker is there before the others, so that none tries twice."""
    places = addresses(size)
    first = Meeting(places, 0)
    time.sleep(0.1)
    others = [Meeting(places, index) for index in range(1, size)]
    for meeting in [first, *others]:
        assert meeting.answer() is None


def watch(size):
    """The workers of a watch, once all are connected."""
    first = FirstWorker(size, 30, lambda *_: None)
    invitation = first.invitation()
    others = [
        OtherWorker(index, "localhost", invitation, 30, lambda *_: None)
        for index in range(1, size)
    ]
    while len(first._links) < size - 1:
        time.sleep(0.01)
    return [first, *others]


def lose(size):
    """The last one dies; the others learn it, and end with an error."""
    watches = watch(size)
    watches[-1]._link.channel.hang_up()
    for one in watches:
        assert one.wait_for_a_loss(10)
    for one in watches:
        one.leave("UnavailableError: a worker is gone")


def end(size):
    """All end in order."""
    threads = [
        threading.Thread(target=one.leave, daemon=True) for one in watch(size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def counted(phase, size):
    """The least of three runs, as some send a heartbeat or look once more.

    Each ends with its last thread, or a busy machine would count only a part.
    """
    least = None
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patches:
            counter = Counter(patches)
            with counter:
                before = threading.enumerate()
                phase(size)
                for thread in set(threading.enumerate()) - set(before):
                    thread.join(30)
                    assert not thread.is_alive(), thread
        least = counter.counts if least is None else least & counter.counts
    return least


@pytest.mark.nightly(but=2)
@pytest.mark.parametrize("phase", [lose, end, meet])
def test_costs_grow_as_the_workers_do(phase):
    counts = [counted(phase, size) for size in SIZES]
    for what in ("messages", "bytes", "calls"):
        small, middle, large = (count[what] for count in counts)
        # From 8 to 16 workers twice what from 4 to 8; a square's is 4 times.
        assert large - middle <= 2.5 * (middle - small), (what, counts)


def test_a_report_is_no_look_at_all_that_came_before(monkeypatch):
    looks = []
    is_open = Channel.is_open
    monkeypatch.setattr(
        Channel, "is_open", lambda self: looks.append(1) or is_open(self)
    )
    places = addresses(16)
    first = Meeting(places, 0)
    with contextlib.ExitStack() as others:
        for index in range(1, 16):
            others.enter_context(reported(places, index))
            time.sleep(0.01)  # Each report is seen apart.
        assert first.answer() is None
    assert len(looks) == 15


def test_a_list_of_workers_is_checked_once_for_all(monkeypatch):
    checked = []
    monkeypatch.setattr(cluster, "split_address", checked.append)
    places = tuple(f"growth:{port}" for port in range(1, 17))
    for index in range(16):
        Worker(list(places), index).tf_config()
    assert len(checked) == 16
