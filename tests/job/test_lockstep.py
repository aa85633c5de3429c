"""Workers that have parted end their job; those that are late are named."""

import time

import pytest

from kerasmgpu.engine.joint_calls import JointCalls
from kerasmgpu.job.lockstep import Lockstep
from kerasmgpu.job.places import Places
from kerasmgpu.job.watch import FirstWorker, OtherWorker

SECONDS = 0.9
TOGETHER = "together", "at the end of epoch 1"
STEP = "step", "in step 3 of epoch 1"
LATE = "callback", "in callback Save.on_epoch_end"


class Job:
    """Two workers that look at one another, in one process."""

    def __init__(self, first, other):
        self.lost = []
        self.calls = [JointCalls(), JointCalls()]
        self.watches = [FirstWorker(2, 30.0, self.on_lost)]
        invitation = self.watches[0].invitation()
        self.watches.append(
            OtherWorker(1, "127.0.0.1", invitation, 30.0, self.on_lost)
        )
        for index, where in enumerate((first, other)):
            watch, calls = self.watches[index], self.calls[index]
            told = Places(index, 2, watch.tell, calls)
            watch.hear_place = told.hear
            here = Lockstep(watch, told, calls, SECONDS, lambda _, w=where: w)
            here.start()

    def on_lost(self, worker, reason):
        self.lost.append((worker, reason))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for watch in reversed(self.watches):
            watch.leave("the test is over")

    def wait(self, condition, seconds=10.0):
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.05)
        return condition()


def test_workers_in_different_calls_end_the_job_and_are_named():
    with Job(STEP, TOGETHER) as job:
        for calls, last in zip(job.calls, ("train_step", "reduction")):
            calls.note("train_step")
            calls.note(last)
        assert job.wait(lambda: len(job.lost) == 2)
    worker, reason = job.lost[0]
    assert worker == 1
    assert reason.startswith(
        "out of step: worker 1 is at the end of epoch 1, worker 0 is in step 3 "
        "of epoch 1. All workers must run the same"
    )


@pytest.mark.parametrize(
    "other, more, said",
    [
        (
            LATE,
            0,
            r"worker 1 is in callback Save.on_epoch_end since 1 s; worker 0 "
            "waits for it in step 3 of epoch 1",
        ),
        (TOGETHER, 1, "worker 0 is in step 3 of epoch 1, worker 1 is at the"),
    ],
)
def test_a_late_worker_is_named_once_and_goes_on(caplog, other, more, said):
    with Job(STEP, other) as job:
        for calls in job.calls:
            calls.note("train_step")
        for _ in range(more):
            job.calls[1].note("reduction")
        assert job.wait(lambda: caplog.records)
        time.sleep(SECONDS)
        assert not job.lost
        (record,) = caplog.records
        assert said in record.getMessage()
        if more:  # The other one may still compute, but not for ever.
            assert job.wait(lambda: job.lost, seconds=30.0)


def test_workers_that_go_on_and_those_that_wait_for_nobody_are_left_alone(
    caplog,
):
    with Job(LATE, LATE) as job:
        time.sleep(3 * SECONDS)
    with Job(STEP, TOGETHER) as goes_on:
        for _ in range(30):
            time.sleep(SECONDS / 10)
            for calls, name in zip(goes_on.calls, ("train_step", "reduction")):
                calls.note(name)
        assert not goes_on.lost
    assert not job.lost[:0] and not caplog.records
