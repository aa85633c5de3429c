"""Workers give up a step together, and start anew when all have."""

import threading

from kerasmgpu.job.attempts import Attempts


class Job:
    """Workers whose messages arrive at once, in the sender's thread."""

    def __init__(self, num_workers):
        self.aborted = []
        self.workers = [
            Attempts(
                self._sender(index),
                num_workers - 1 if index == 0 else 0,
                lambda index=index: self.aborted.append(index),
                lambda: False,
            )
            for index in range(num_workers)
        ]

    def _sender(self, index):
        def send(**message):
            targets = self.workers[1:] if index == 0 else self.workers[:1]
            for worker in targets:
                worker.hear(message)

        return send

    def meet(self):
        threads = [
            threading.Thread(target=worker.meet) for worker in self.workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_all_give_up_when_one_does():
    job = Job(3)
    assert all([worker.begin() for worker in job.workers])
    job.workers[2].give_up()
    assert job.aborted == [1, 0] or job.aborted == [0, 1]
    assert all(worker.is_given_up() for worker in job.workers)


def test_a_worker_between_steps_does_not_begin():
    job = Job(2)
    assert job.workers[1].begin()
    job.workers[1].give_up()
    assert job.aborted == []
    assert not job.workers[0].begin()


def test_the_next_round_begins_when_all_have_met():
    job = Job(3)
    for number in range(3):
        for worker in job.workers:
            assert worker.begin()
        job.workers[number].give_up()
        for worker in job.workers:
            worker.end()
        job.meet()
        assert len(job.aborted) == 2 * (number + 1)
    assert all([worker.begin() for worker in job.workers])


def test_an_attempt_that_ended_meanwhile_is_not_aborted():
    """The abort would hit the collectives of the next attempt."""
    job = Job(2)
    first, _ = job.workers
    first._send = lambda **message: first.end()
    assert first.begin()
    first.hear({"gives_up": 0})
    assert first.is_given_up()
    assert job.aborted == []


def test_a_message_of_an_earlier_round_is_ignored():
    job = Job(2)
    job.workers[1].give_up()
    job.meet()
    assert job.workers[0].begin()
    job.workers[0].hear({"gives_up": 0})
    assert job.aborted == []


def test_a_lost_worker_ends_the_wait():
    lone = Attempts(lambda **_: None, 1, lambda: None, lambda: True)
    assert not lone.meet()
