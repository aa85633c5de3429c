"""The line about a lost worker is written, and found again."""

from kerasmgpu.job import loss
from kerasmgpu.job.cluster import Worker

ADDRESSES = ("a:1", "[fd00::1]:2", "c:3")


def test_who_is_lost_is_found_in_what_a_worker_printed():
    text = loss.line(Worker(ADDRESSES, 0), 1, "ValueError: no\n data")
    assert text == (
        "kerasmgpu: worker 1 ([fd00::1]:2) is lost: ValueError: no data. "
        "This worker (0) can't continue."
    )
    lines = ["step 7", f"ERROR:absl:{text}", "bye"]
    assert loss.lost_in(lines) == (1, "ValueError: no data")
    assert loss.lost_in(["worker 1 is lost"]) is None


def test_a_worker_at_its_end_says_so_and_is_understood():
    text = loss.line(Worker(ADDRESSES, 2), 0, "it is silent", has_ended=True)
    assert text.endswith("is lost: it is silent. This worker (2) had ended.")
    assert loss.lost_in([text]) == (0, "it is silent")


def test_a_worker_that_is_lost_itself_blames_nobody():
    text = loss.line(Worker(ADDRESSES, 1), 1, "no heartbeat for 3 s")
    assert text == (
        "kerasmgpu: this worker (1) is lost to the others, which end: no "
        "heartbeat for 3 s. It can't continue."
    )
    assert loss.lost_in([text]) is None


def test_a_worker_that_is_out_of_step_is_not_called_lost():
    reason = "out of step: worker 1 is in predict, worker 0 in step 2"
    text = loss.line(Worker(ADDRESSES, 0), 1, reason)
    assert text == (
        f"kerasmgpu: worker 1 ([fd00::1]:2) is {reason}. This worker (0) can't "
        "continue."
    )
    assert loss.lost_in([text]) == (1, reason)
    text = loss.line(Worker(ADDRESSES, 1), 1, reason)
    assert text.startswith("kerasmgpu: this worker (1) is out of step: worker")
    assert loss.state(reason) == reason
