"""Workers that learn each other's addresses, in threads of a test."""

import socket
import threading
import time

from kerasmgpu.errors import InputError
from kerasmgpu.job import introduction, ports
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.launchers import Meeting


def meeting(size, port=None, **changes):
    """Where the workers of a job on this machine meet."""
    return Meeting(
        **{
            "launcher": "mpirun",
            "num_workers": size,
            "host": "127.0.0.1",
            "port": port or ports.free(1)[0],
            "is_local": True,
            "run": f"job {time.monotonic()}",
            "rank_variable": "OMPI_COMM_WORLD_RANK",
            **changes,
        }
    )


class Introduction(threading.Thread):
    """A worker in a thread; `answer()` is a `Worker`, or an error's text."""

    def __init__(self, place, index, timeout_seconds=10, token=""):
        super().__init__(daemon=True)
        self._arguments = Worker((), index, place), timeout_seconds, token
        self._answer = None
        self.start()

    def run(self):
        try:
            self._answer = introduction.introduce(*self._arguments)
        except InputError as error:
            self._answer = str(error)

    def answer(self):
        self.join(30)
        assert not self.is_alive()
        return self._answer


def test_all_get_the_same_list():
    place = meeting(3)
    workers = [Introduction(place, index).answer for index in (2, 0, 1)]
    found = {worker().index: worker() for worker in workers}
    assert sorted(found) == [0, 1, 2]
    assert len(set(found[0].addresses)) == 3
    assert all(a.startswith("127.0.0.1:") for a in found[0].addresses)
    assert len({worker.addresses for worker in found.values()}) == 1


def test_lists_longer_than_a_message(monkeypatch):
    monkeypatch.setattr(introduction, "_AT_ONCE", 1)
    place = meeting(3)
    workers = [Introduction(place, index) for index in range(3)]
    addresses = {worker.answer().addresses for worker in workers}
    assert len(addresses) == 1
    assert len(addresses.pop()) == 3


def test_a_port_in_use_is_passed_over():
    place = meeting(2)
    first = introduction.candidates(place)[0]
    with socket.create_server(("127.0.0.1", first)):
        workers = [Introduction(place, index) for index in range(2)]
        answers = [worker.answer() for worker in workers]
    assert answers[0].addresses == answers[1].addresses


def test_jobs_at_the_same_port_do_not_mix():
    port = ports.free(1)[0]
    places = [meeting(2, port, run=name) for name in ("one", "other")]
    workers = [[Introduction(place, 0) for place in places]]
    workers += [[Introduction(place, 1) for place in places]]
    first, second = ([w.answer() for w in rank] for rank in workers)
    assert [w.addresses for w in first] == [w.addresses for w in second]
    assert first[0].addresses != first[1].addresses


def test_the_last_ports():
    found = introduction.candidates(meeting(2, 65535))
    assert (len(found), found[-1]) == (16, 65535)


def test_no_free_port(monkeypatch):
    monkeypatch.setattr(introduction, "_NUM_PORTS", 1)
    place = meeting(2)
    (port,) = introduction.candidates(place)
    with socket.create_server(("127.0.0.1", port)):
        text = Introduction(place, 0).answer()
    assert "Worker 0 can't listen on any port" in text
    assert "Set MASTER_PORT" in text


def test_who_is_missing_is_told_to_all():
    place = meeting(3)
    workers = [Introduction(place, index, 1) for index in (0, 1)]
    for worker in workers:
        assert "Missing after 1 s: the processes of mpirun with rank 2" in (
            worker.answer()
        )


def test_a_missing_first_worker_is_named():
    text = Introduction(meeting(2), 1, 1).answer()
    assert "Worker 0 could not be reached on 127.0.0.1, ports " in text
    assert "for 1 s: Connection refused" in text


def test_the_same_rank_twice_is_told_to_all():
    place = meeting(3)
    workers = [Introduction(place, index) for index in (0, 1, 1)]
    for worker in workers:
        assert "Two processes have rank 1" in worker.answer()


def test_several_machines_need_a_token():
    place = meeting(2, is_local=False)
    text = Introduction(place, 1).answer()
    assert "mpirun started this job on several machines: set " in text
    assert "KERASMGPU_JOB_TOKEN" in text
    workers = [Introduction(place, index, token="secret") for index in (0, 1)]
    assert workers[0].answer().addresses == workers[1].answer().addresses


def test_another_token_is_told_at_once():
    place = meeting(2)
    first = Introduction(place, 0, 3, "one")
    began = time.monotonic()
    text = Introduction(place, 1, 20, "another").answer()
    assert "has another KERASMGPU_JOB_TOKEN than worker 1" in text
    assert time.monotonic() - began < 10
    assert "Missing" in first.answer()


def test_other_machines_do_not_reach_the_meeting_of_one():
    place = meeting(2)
    with introduction._listening(place) as server:
        assert server.getsockname()[0] == "127.0.0.1"


def test_workers_are_introduced_once():
    worker = Worker(("a:1", "b:1"), 0)
    assert introduction.introduce(worker, 1, "") is worker
