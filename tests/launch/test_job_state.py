"""Decisions of rank 0, with a clock of the tests' own."""

import signal

import pytest

from kerasmgpu.job.addresses import Host
from kerasmgpu.launch.job_state import Job, Policy

POLICY = {
    "max_restarts": 0,
    "min_workers": None,
    "grace_seconds": 30.0,
    "exit_wait_seconds": 60.0,
    "start_wait_seconds": 600.0,
    "restart_wait_seconds": 60.0,
}


class Simulation:
    """A job on machines a and b with two workers each, without any."""

    def __init__(self, **policy):
        self.now = 0.0
        self.sent = []
        self.said = []
        self.job = Job(
            (Host("a", 2), Host("b", 2)),
            Policy(**{**POLICY, **policy}),
            lambda rank, **message: self.sent.append((rank, message)),
            self.said.append,
            self.now,
            new_token=lambda: "token of this run",
        )

    def pass_time(self, seconds):
        self.now += seconds
        self.job.on_time(self.now)

    def start(self, *ranks):
        """Lets the machines join that have not, and choose ports."""
        for rank in ranks:
            self.job.on_joined(rank, self.now)
        self.give_ports()

    def give_ports(self):
        for rank, message in self.take("prepare"):
            ports = [10 * rank + 1, 10 * rank + 2]
            self.job.on_ports(rank, message["run"], ports, self.now)

    def end(self, number, status, run=0):
        rank = 0 if number < 2 else 1
        self.job.on_ended(rank, run, number, status, [], self.now)

    def lose(self, rank):
        self.job.on_lost(rank, "gone", self.now, self.now)

    def take(self, kind):
        """What was sent of a kind since the last time."""
        taken = [(r, m) for r, m in self.sent if m["type"] == kind]
        self.sent = [(r, m) for r, m in self.sent if m["type"] != kind]
        return taken

    def statuses(self):
        return {rank: m["status"] for rank, m in self.take("finish")}


def test_starts_when_all_are_there():
    job = Simulation()
    job.start(1)
    assert job.take("start") == []
    job.start(0)
    addresses = ["a:1", "a:2", "b:11", "b:12"]
    assert job.take("start") == [
        (
            rank,
            {
                "type": "start",
                "run": 0,
                "addresses": addresses,
                "token": "token of this run",
                "numbers": numbers,
            },
        )
        for rank, numbers in ((0, [0, 1]), (1, [2, 3]))
    ]
    for number in range(4):
        assert job.statuses() == {}
        job.end(number, 0)
    assert job.statuses() == {0: 0, 1: 0}


def test_gives_up_waiting_at_the_start():
    job = Simulation(start_wait_seconds=60, max_restarts=1, min_workers=1)
    job.start(0)
    job.pass_time(59)
    assert not job.job.is_finished
    job.pass_time(1)
    ((_, message),) = job.take("finish")
    assert message["status"] == 1
    assert message["message"] == "machine b (rank 1) did not join within 60 s"


def test_failure_ends_the_rest_once():
    job = Simulation(grace_seconds=5)
    job.start(0, 1)
    job.end(2, 3)
    job.end(3, 1)
    order = {"type": "end", "grace_seconds": 5}
    assert job.take("end") == [(0, order), (1, order)]
    job.end(0, -15)
    job.end(1, -15)
    assert job.statuses() == {0: 3, 1: 3}


def test_others_get_time_after_an_end_without_error():
    job = Simulation(exit_wait_seconds=60)
    job.start(0, 1)
    job.end(0, 0)
    job.pass_time(50)
    job.end(1, 0)
    job.pass_time(9)
    assert job.take("end") == []
    job.pass_time(1)
    assert len(job.take("end")) == 2


def test_restarts_wait_longer_each_time_and_end():
    job = Simulation(max_restarts=3)
    job.start(0, 1)
    job.pass_time(11)  # Has run: not a failure of the program.
    for run, wait in enumerate([1, 2, 4]):
        for number in range(4):
            job.end(number, 1, run=run)
        job.pass_time(wait - 0.1)
        assert job.take("prepare") == []
        job.pass_time(0.1)
        job.give_ports()
        assert len(job.take("start")) == (4 if run == 0 else 2)
    for number in range(4):
        job.end(number, 1, run=3)
    ((_, message), _) = job.take("finish")
    assert "all restarts of --max_restarts=3 are used" in message["message"]


@pytest.mark.parametrize(
    "status, seconds, restarts",
    [(1, 1, 1), (2, 1, 0), (127, 1, 0), (2, 11, 2), (1, 11, 2), (-9, 1, 2)],
)
def test_what_fails_at_once_is_tried_once_more_at_most(
    status, seconds, restarts
):
    job = Simulation(max_restarts=2)
    job.start(0, 1)
    job.pass_time(seconds)
    for run in range(3):
        if job.job.is_finished:
            break
        for number in range(4):
            job.end(number, status, run=run)
        job.pass_time(10)
        job.give_ports()
    assert sum("restart" in text for text in job.said) == restarts


def test_reports_of_an_earlier_run_are_ignored():
    job = Simulation(max_restarts=1)
    job.start(0, 1)
    for number in range(4):
        job.end(number, 75)
    job.pass_time(1)
    job.give_ports()
    job.end(0, 3, run=0)
    assert job.take("end") == []


def test_smaller_job_and_back_to_all():
    job = Simulation(max_restarts=2, min_workers=2, restart_wait_seconds=30)
    job.start(0, 1)
    job.take("start")
    job.lose(1)
    job.end(0, 1)
    job.end(1, 1)
    job.pass_time(30.9)
    assert job.take("prepare") == []
    job.pass_time(0.1)
    job.give_ports()
    ((rank, message),) = job.take("start")
    assert (rank, message["addresses"]) == (0, ["a:1", "a:2"])
    job.job.on_joined(1, job.now)
    assert job.said[-1].endswith("it takes part after the next restart")
    job.end(0, -9, run=1)
    job.end(1, 1, run=1)
    job.pass_time(2)
    job.give_ports()
    assert [rank for rank, _ in job.take("start")] == [0, 1]


def test_too_few_left():
    job = Simulation(max_restarts=2, min_workers=3, restart_wait_seconds=30)
    job.start(0, 1)
    job.lose(1)
    job.end(0, 1)
    job.end(1, 1)
    job.pass_time(31)
    ((_, message),) = job.take("finish")
    assert message["status"] == 1
    assert "2 of 4 workers left, --min_workers=3" in message["message"]


def test_machine_lost_while_ports_are_chosen():
    job = Simulation()
    job.job.on_joined(0, 0.0)
    job.job.on_joined(1, 0.0)
    job.lose(1)
    job.start(1)
    assert job.take("start") == []
    job.pass_time(1)
    job.give_ports()
    assert len(job.take("start")) == 2


def test_machine_that_is_told_to_end_leaves_and_the_rest_goes_on():
    job = Simulation(max_restarts=1, min_workers=2, restart_wait_seconds=0)
    job.start(0, 1)
    job.job.on_signal(1, signal.SIGTERM, job.now)
    assert [rank for rank, _ in job.take("end")] == [0, 1]
    for number in range(4):
        job.end(number, 75)
    assert job.statuses() == {1: 75}
    job.lose(1)
    job.pass_time(1)
    job.give_ports()
    # That it left counts no more: this is a failure of the run without it.
    job.end(0, 0, run=1)
    job.pass_time(60)
    job.end(1, -15, run=1)
    assert job.statuses() == {0: 1}


@pytest.mark.parametrize(
    "rank, number", [(0, signal.SIGTERM), (1, signal.SIGINT)]
)
def test_end_of_all_is_no_restart(rank, number):
    job = Simulation(max_restarts=5)
    job.start(0, 1)
    job.job.on_signal(rank, number, job.now)
    for worker in range(4):
        job.end(worker, 75)
    assert job.statuses() == {0: 75, 1: 75}


def test_signal_before_anything_runs():
    job = Simulation()
    job.start(0)
    job.job.on_signal(0, signal.SIGTERM, job.now)
    assert job.statuses() == {0: 143}


def test_machine_that_leaves_and_is_gone_before_the_end_is_not_lost():
    job = Simulation()
    job.start(0, 1)
    job.job.on_signal(1, signal.SIGTERM, job.now)
    job.end(0, 75)
    job.end(1, 75)
    job.lose(1)
    assert job.statuses() == {0: 75}
