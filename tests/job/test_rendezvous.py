"""Workers meet, or learn in one line and in time why they don't."""

import socket
import threading
import time

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.job import gathering, handshake, rendezvous
from kerasmgpu.job.cluster import Worker
from tests.job.meetings import (
    Claim,
    Meeting,
    addresses,
    connect,
    last_heard,
    port_of,
    reported,
    server_on,
)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_all_go_on_when_all_are_there(host):
    if host == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    places = addresses(3, host)
    meetings = [Meeting(places, index) for index in (2, 0, 1)]
    assert [meeting.answer() for meeting in meetings] == [None] * 3


@pytest.mark.parametrize("late", [0, 1])
def test_a_late_worker_is_waited_for(late):
    places = addresses(2)
    early = Meeting(places, 1 - late)
    time.sleep(1)
    assert early.is_alive()
    assert Meeting(places, late).answer() is None
    assert early.answer() is None


def test_a_worker_that_is_suspended_at_the_call_back_is_waited_for(monkeypatch):
    monkeypatch.setattr(gathering, "CONNECT_SECONDS", 0.2)
    answer = handshake.answer

    def answer_late(channel, token, purpose, seconds):
        if purpose == "worker 1":
            time.sleep(1)
        answer(channel, token, purpose, seconds)

    monkeypatch.setattr(handshake, "answer", answer_late)
    places = addresses(2)
    meetings = [Meeting(places, 0), Meeting(places, 1)]
    assert [meeting.answer() for meeting in meetings] == [None] * 2


def test_the_port_is_free_at_once():
    places = addresses(2)
    for _ in range(2):  # The second time like a job that is started anew.
        meetings = [Meeting(places, 0), Meeting(places, 1)]
        assert [meeting.answer() for meeting in meetings] == [None] * 2
        for place in places:  # With SO_REUSEADDR, as gRPC.
            socket.create_server(("", port_of(place))).close()


def test_who_is_missing_is_told_to_all_in_time():
    places = addresses(3)
    # The time of the second has nearly passed when the first one comes.
    start = time.monotonic()
    other = Meeting(places, 1, timeout_seconds=1)
    time.sleep(0.5)
    first = Meeting(places, 0, timeout_seconds=2)
    for text in first.answer(), other.answer():
        assert f"Missing after 2 s: worker 2 ({places[2]}). " in text
    assert 2.4 < time.monotonic() - start < 5


@pytest.mark.parametrize("host", ["127.0.0.1", "nobody.invalid"])
def test_an_unreachable_first_worker_is_named_in_time(host):
    places = addresses(2, host)
    start = time.monotonic()
    text = Meeting(places, 1, timeout_seconds=1).answer()
    assert f"Worker 0 ({places[0]}) could not be reached for 1 s: " in text
    assert time.monotonic() - start < 5


def test_another_server_at_the_first_worker_is_told():
    places = addresses(2)
    with server_on(port_of(places[0])) as server:
        meeting = Meeting(places, 1, timeout_seconds=1)
        with server.accept()[0] as link:
            link.sendall(b"HTTP/1.0 400 Bad Request\r\n")
            assert "another program answers there" in meeting.answer()


def test_a_first_worker_that_dies_is_waited_for_again():
    places = addresses(2)
    with server_on(port_of(places[0])) as server:
        meeting = Meeting(places, 1)
        server.accept()[0].close()
    assert Meeting(places, 0).answer() is None
    assert meeting.answer() is None


@pytest.mark.parametrize("index", [0, 1])
def test_a_port_in_use_is_named(index):
    places = addresses(2)
    port = port_of(places[index])
    with socket.create_server(("127.0.0.1", port)):
        text = Meeting(places, index).answer()
    assert (
        f"Worker {index} can't listen on port {port} ({places[index]})" in text
    )
    assert "same index" in text


def test_the_same_index_twice_on_one_host_is_told():
    places = addresses(2)
    meetings = [Meeting(places, 1, timeout_seconds=1) for _ in range(2)]
    texts = [meeting.answer() for meeting in meetings]
    assert sum("a worker with the same index" in text for text in texts) == 1


@pytest.mark.parametrize("known_by", ["token", "addresses"])
def test_the_same_index_on_two_hosts_is_told_to_all(known_by):
    places = addresses(3)
    token = "secret" if known_by == "token" else ""
    first = Meeting(places, 0, token=token)
    with reported(places, 1, token=token) as one:
        # On the other host its port would be free: here it has none.
        other = Claim(
            places,
            1,
            num_workers=3,
            nonce="another",
            token=token,
            addresses=rendezvous._list_of(Worker(places, 0))
            if known_by == "addresses"
            else "",
        )
        for text in first.answer(), other.answer(), last_heard(one):
            assert "Two workers have index 1 (the second" in text


def test_a_doubled_index_of_another_list_is_told_in_the_end():
    places = addresses(3)
    first = Meeting(places, 0, timeout_seconds=1)
    with reported(places, 1) as one:
        other = Claim(places, 1, num_workers=3, nonce="another")
        assert "Two workers have index 1" in other.answer()
        for text in first.answer(), last_heard(one):
            assert f"Missing after 1 s: worker 2 ({places[2]}). " in text
            assert text.endswith(f" Rejected: {other.answer()}")


def test_clusters_of_different_size_are_told_to_both():
    places = addresses(3)
    first = Meeting(places[:2], 0)
    for text in Meeting(places, 1).answer(), first.answer():
        assert (
            "Worker 1 (on 127.0.0.1) has a list of 3 workers, and worker"
            in text
        )


def test_a_worker_past_the_list_of_the_first_is_told():
    places = addresses(3)
    first = Meeting(places[:2], 0, timeout_seconds=1)
    for text in Meeting(places, 2).answer(), first.answer():
        assert (
            "Worker 2 (on 127.0.0.1) has a list of 3 workers, and worker"
            in text
        )


@pytest.mark.parametrize("token", ["", "secret"])
def test_an_address_where_the_worker_is_not_is_told_to_both(token):
    places = addresses(3)
    start = time.monotonic()
    seconds = 10 if token else 1
    first = Meeting((places[0], places[2]), 0, seconds, token)
    for text in Meeting(places[:2], 1, token=token).answer(), first.answer():
        assert "Worker 0 can't reach worker 1, which runs on 127.0.0.1" in text
        assert f"at its address {places[2]}: Connection refused" in text
    assert time.monotonic() - start < 5


def test_an_address_where_something_else_answers_is_told_to_both():
    places = addresses(3)
    with server_on(port_of(places[2])) as server:
        first = Meeting((places[0], places[2]), 0, token="secret")
        other = Meeting(places[:2], 1, token="secret")
        with server.accept()[0] as link:
            link.sendall(b"SSH-2.0\r\n")
            for text in first.answer(), other.answer():
                assert f"{places[2]}: another program answers there" in text


def test_an_address_where_another_worker_answers_is_told():
    one, two, three = addresses(3)
    others = [Meeting((one, two, three), i, timeout_seconds=2) for i in (1, 2)]
    for place in (two, three):
        connect(place).close()
    first = Meeting((one, three, two), 0, timeout_seconds=1)
    told = [other.answer() for other in others]
    # The one that reported last may have found nobody there any more.
    assert any("another program answers there" in text for text in told)
    for text in told:
        assert text in first.answer()


def test_swapped_indices_end_in_time():
    (place,) = addresses(1)
    # As if both hosts used one port: each worker is at the other's address.
    text = Meeting((place, f"localhost:{port_of(place)}"), 1, 1).answer()
    assert f"Worker 0 ({place}) could not be reached for 1 s" in text
    assert "another program answers there" in text


def test_a_worker_that_dies_after_its_report_is_missing():
    places = addresses(3)
    first = Meeting(places, 0, timeout_seconds=2)
    with reported(places, 1):
        pass
    assert (
        f"Missing after 2 s: worker 1 ({places[1]}), worker 2 ({places[2]})"
        in first.answer()
    )


def test_a_worker_may_come_again_after_it_died():
    places = addresses(3)
    first = Meeting(places, 0)
    with reported(places, 1):
        pass
    others = [Meeting(places, 1), Meeting(places, 2)]
    assert [m.answer() for m in (first, *others)] == [None] * 3


def test_workers_that_see_the_same_gpus_divide_them():
    places = addresses(3)
    seen = [["GPU-1", "GPU-2"], ["GPU-3"], ["GPU-1", "GPU-2"]]
    meetings = [Meeting(places, i, gpus=seen[i]) for i in range(3)]
    assert [meeting.answer() for meeting in meetings] == [None] * 3
    assert [m.own for m in meetings] == [["GPU-1"], ["GPU-3"], ["GPU-2"]]


def test_fewer_gpus_than_workers_are_told_to_all():
    places = addresses(2)
    meetings = [Meeting(places, index, gpus=["GPU-1"]) for index in range(2)]
    for meeting in meetings:
        assert "Workers 0, 1 see the same GPUs, fewer than" in meeting.answer()


def test_jobs_with_the_same_addresses_know_their_own_workers():
    """Slurm's ports of two jobs may be equal."""
    places = addresses(2)
    answers = []

    def first(run):
        worker = Worker(places, 0, run=run)
        try:
            rendezvous.meet(worker, 3)
        except InputError as error:
            answers.append(str(error))

    thread = threading.Thread(target=first, args=["slurm 1.0"])
    thread.start()
    with pytest.raises(InputError, match="could not be reached for 1 s"):
        rendezvous.meet(Worker(places, 1, run="slurm 235.0"), 1)
    thread.join()
    assert "Missing after 3 s: worker 1" in answers[0]
