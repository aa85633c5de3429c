"""Losses are noticed and named, and an orderly end waits for all."""

import contextlib
import json
import queue
import socket
import threading
import time

import pytest

from kerasmgpu.job import handshake
from kerasmgpu.job.channel import Channel
from kerasmgpu.job.watch import FirstWorker, OtherWorker


class Job:
    """A first worker and two others, as threads of this process."""

    def __init__(self, timeout_seconds=0.6):
        self.lost = [queue.Queue() for _ in range(3)]
        first = FirstWorker(3, timeout_seconds, self.heard_by(0))
        self.watches = [first] + [
            OtherWorker(
                index,
                "localhost",
                first.invitation(),
                timeout_seconds,
                self.heard_by(index),
            )
            for index in (1, 2)
        ]
        self.wait_for_links()

    def heard_by(self, index):
        return lambda worker, reason: self.lost[index].put((worker, reason))

    def wait_for_links(self):
        deadline = time.monotonic() + 5
        while len(self.watches[0]._links) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def leave(self, *indices):
        threads = [
            threading.Thread(target=self.watches[index].leave, daemon=True)
            for index in indices
        ]
        for thread in threads:
            thread.start()
        return threads


@pytest.fixture
def job():
    return Job()


def test_a_closed_connection_is_a_lost_worker_at_once(job):
    start = time.monotonic()
    job.watches[2]._link.channel.socket.shutdown(2)
    for index in (0, 1):
        assert job.lost[index].get(timeout=5) == (2, "its process has ended")
    assert time.monotonic() - start < 0.5


def test_places_of_workers_reach_the_first_one(job):
    heard = queue.Queue()
    job.watches[0].hear_place = lambda *told: heard.put(told)
    job.watches[2].tell(place={"steps": 3})
    assert heard.get(timeout=5) == (2, {"steps": 3})


def test_silence_is_a_lost_worker_after_the_time_out(job):
    job.watches[1]._link.send = lambda **message: None
    for index in (0, 2):
        assert job.lost[index].get(timeout=5) == (
            1,
            "no heartbeat for 0.6 s",
        )


def test_a_silent_worker_that_wakes_up_learns_that_it_is_lost(job):
    job.watches[1]._link.send = lambda **message: None
    assert job.lost[1].get(timeout=5) == (1, "no heartbeat for 0.6 s")
    assert job.watches[1].wait_for_a_loss(0)


def test_a_silent_first_worker_that_wakes_up_learns_it_too(job):
    for link in job.watches[0]._links.values():
        link.send = lambda **message: None
    for lost in job.lost:
        assert lost.get(timeout=5) == (0, "no heartbeat for 0.6 s")


def test_a_lost_first_worker_is_noticed_by_all_others(job):
    for link in job.watches[0]._links.values():
        link.close()
    for index in (1, 2):
        assert job.lost[index].get(timeout=5)[0] == 0


def test_a_failure_is_told_with_its_words(job):
    job.watches[1].leave("ValueError: no data")
    for index in (0, 2):
        assert job.lost[index].get(timeout=5) == (1, "ValueError: no data")
    assert job.watches[0].lost == job.watches[2].lost == 1


def test_a_loss_is_told_before_the_wait_for_it_is_over():
    told = threading.Event()

    def tell(worker, reason):
        time.sleep(0.2)
        told.set()

    first = FirstWorker(2, 5.0, tell)
    reports = threading.Thread(target=first.part, args=(1, "out of step"))
    reports.start()
    assert first.wait_for_a_loss(5.0) and told.is_set()
    reports.join()


def test_whoever_ends_in_order_waits_for_the_others(job):
    threads = job.leave(1, 0)
    time.sleep(0.2)
    assert all(thread.is_alive() for thread in threads)
    for thread in threads + job.leave(2):
        thread.join(5)
        assert not thread.is_alive()
    assert all(lost.empty() for lost in job.lost)


def test_an_early_end_is_told_to_those_who_go_on(job):
    job.leave(2)
    worker, reason = job.lost[0].get(timeout=5)
    assert worker == 2 and "it ended 0.6 s ago" in reason
    assert job.lost[1].get(timeout=5)[0] == 2
    assert job.watches[2].wait_for_a_loss(5)
    assert (job.watches[2].lost, job.watches[2].reason) == (2, reason)


def test_the_end_of_the_interpreter_starts_no_thread(job, monkeypatch):
    def refuse(thread):  # As Python 3.12 does.
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def leave_later():
        time.sleep(0.2)
        for watch in job.watches[1:]:
            watch._leaving = True
            watch._link.send(done=True)

    threading.Thread(target=leave_later, daemon=True).start()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    job.watches[0].leave()
    assert all(lost.empty() for lost in job.lost)


def test_a_quiet_job_stays_a_job(job):
    time.sleep(1.5)
    assert all(lost.empty() for lost in job.lost)


def test_a_stranger_is_not_let_in(job):
    # Not `print`: it is told of the loss when another test reads the output.
    strange = FirstWorker(2, 0.6, lambda *_: None, token="of the job")
    invitation = strange.invitation()
    guess = invitation.replace(b'"secret": "', b'"secret": "x')
    for invited, token in (guess, "of the job"), (invitation, ""):
        with pytest.raises(handshake.WrongToken):
            OtherWorker(1, "localhost", invited, 0.6, job.heard_by(1), token)
    assert not strange._links
    OtherWorker(1, "localhost", invitation, 0.6, job.heard_by(1), "of the job")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "1\n",
        "[]\n",
        "GET / HTTP/1.1\r\n\r\n",
        '{"worker": true}\n',
        '{"to": "watch", "nonce": "é"}\n{"proof": "é"}\n{"worker": 1}\n',
        '{"worker": "1"}\n',
        '{"worker": 2}\n',
        '{"worker": 0}\n',
        '{"worker": [1]}\n',
    ],
)
@pytest.mark.parametrize("invited", [False, True])
def test_a_stranger_does_not_stand_in_the_way(said, invited):
    lost = queue.Queue()
    first = FirstWorker(2, 2, lambda *what: lost.put(what))
    invitation = json.loads(first.invitation())
    address = "localhost", invitation["port"]
    with contextlib.ExitStack() as strangers:
        for _ in range(10):
            socket.create_connection(address, 5).close()
            stranger = strangers.enter_context(
                socket.create_connection(address, 5)
            )
            if invited:
                secret = invitation["secret"]
                handshake.call(Channel(stranger), secret, "watch", 5)
            stranger.sendall(said.encode())
        start = time.monotonic()
        other = OtherWorker(
            1, "localhost", first.invitation(), 2, lambda *_: None
        )
        while not first._links:
            assert time.monotonic() - start < 2
            time.sleep(0.01)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1000):  # The port closes: all are there.
                pass
    other.leave("ValueError: no data")
    assert lost.get(timeout=5) == (1, "ValueError: no data")


def test_nobody_can_connect_once_all_are_there(job):
    port = json.loads(job.watches[0].invitation())["port"]
    deadline = time.monotonic() + 5
    with pytest.raises(ConnectionRefusedError):
        while time.monotonic() < deadline:
            with contextlib.suppress(ConnectionResetError):  # As it closes.
                socket.create_connection(("localhost", port), 5).close()
