"""Who is blamed, and the job's exit status."""

import signal

import pytest

from kerasmgpu.launch import verdict
from kerasmgpu.launch.verdict import End

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL


def ends(*statuses, asked=()):
    """One `End` per status, a second apart; those of `asked` come last."""
    return [
        End(i, "a", status, float(i), was_asked=i >= len(statuses))
        for i, status in enumerate([*statuses, *asked])
    ]


@pytest.mark.parametrize(
    "given, signal_number, kind, status",
    [
        (ends(0, 0), None, "done", 0),
        (ends(0, 3, 1), None, "failed", 3),
        (ends(-KILL, 1), None, "failed", 137),
        (ends(1, asked=(-TERM,)), None, "failed", 1),
        (ends(75, 75), None, "saved", 75),
        (ends(75, 0), None, "saved", 75),
        (ends(75, asked=(-KILL,)), None, "saved", 75),
        (ends(75, 1), None, "failed", 1),
        (ends(0, asked=(-TERM,)), None, "failed", 1),
        (ends(asked=(75, 75)), TERM, "saved", 75),
        (ends(asked=(75, 1)), TERM, "saved", 75),
        (ends(asked=(1, 75)), TERM, "failed", 1),
        (ends(asked=(-TERM, 143)), TERM, "ended", 143),
        (ends(asked=(-TERM, -KILL)), INT, "ended", 130),
        (ends(asked=(0, 0)), TERM, "done", 0),
        (ends(3, asked=(75,)), TERM, "failed", 3),
        ([], INT, "ended", 130),
    ],
)
def test_verdict(given, signal_number, kind, status):
    judged = verdict.of(given, signal_number)
    assert (judged.kind, judged.status) == (kind, status)


def test_lost_machine_explains_what_failed_after_it():
    failed = ends(0, 1)  # At second 1.
    after = verdict.of(failed, lost=[("b", 0.5)])
    assert (after.kind, after.status) == ("lost", 1)
    assert after.message == "the job lost b"
    before = verdict.of(failed, lost=[("b", 1.5)])
    assert before.culprit == failed[1]


def test_message_names_all_in_order():
    given = [
        End(2, "b", 0, 1.0),
        End(1, "a", -KILL, 3.0, lines=("almost", "there")),
        End(0, "a", 1, 3.5),
        End(3, "b", -TERM, 4.0, was_asked=True),
    ]
    assert verdict.of(given).message.splitlines() == [
        "worker 1 on a failed first: killed by SIGKILL (out of memory?) "
        "after 3.0 s. Its last lines:",
        "  | almost",
        "  | there",
        "  worker 2 on b: exit status 0, 2.0 s earlier",
        "  worker 0 on a: exit status 1, 0.5 s later",
    ]


SAYS_1 = (
    "kerasmgpu: worker 1 (b:7) is lost: no heartbeat for 3 s. "
    "This worker (0) can't continue.",
)


def test_who_noticed_a_lost_worker_is_not_blamed_for_it():
    witness = End(0, "a", 1, 9.0, lines=SAYS_1)
    lost = End(1, "b", -TERM, 9.5, was_asked=True, lines=("step 7",))
    judged = verdict.of([witness, lost])
    assert (judged.kind, judged.status, judged.culprit) == ("failed", 1, lost)
    assert judged.message.splitlines() == [
        "worker 1 on b is lost: no heartbeat for 3 s; reported "
        "by worker 0 on a. Its last lines:",
        "  | step 7",
    ]


def test_a_witness_that_had_come_to_its_end_is_not_blamed_either():
    witness = End(0, "a", 0, 9.0, lines=SAYS_1)
    lost = End(1, "b", -TERM, 9.5, was_asked=True)
    assert verdict.of([witness, lost]).culprit == lost


def test_a_lost_worker_that_failed_by_itself_keeps_its_status():
    witness = End(0, "a", 1, 9.0, lines=SAYS_1)
    lost = End(1, "b", -KILL, 9.5)
    judged = verdict.of([witness, lost])
    assert (judged.status, judged.culprit) == (137, lost)


def test_a_witness_of_a_worker_that_is_not_there_is_taken_as_it_is():
    witness = End(0, "a", 1, 9.0, lines=SAYS_1)
    assert verdict.of([witness]).culprit == witness
