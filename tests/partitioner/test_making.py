"""Which threads wait for which, shown by events, not by luck."""

import threading

from kerasmgpu.partitioner.runtime import making
from kerasmgpu.partitioner.runtime.making import alone, stepping

SOON = 0.3
"""Seconds after which a thread that could go on would have done it."""


class Inside(threading.Thread):
    """A thread that is in a context until it is let go."""

    def __init__(self, context):
        super().__init__(daemon=True)
        self.context = context
        self.entered, self.leave = threading.Event(), threading.Event()
        self.start()

    def run(self):
        with self.context:
            self.entered.set()
            self.leave.wait(30)

    def end(self):
        self.leave.set()
        self.join(30)


def test_steps_run_side_by_side():
    one, two = Inside(stepping), Inside(stepping)
    assert one.entered.wait(10) and two.entered.wait(10)
    one.end(), two.end()


def test_what_changes_all_variables_waits_for_steps():
    step = Inside(stepping)
    assert step.entered.wait(10)
    other = Inside(alone)
    assert not other.entered.wait(SOON)
    step.end()
    assert other.entered.wait(10)
    other.end()


def test_steps_wait_for_what_changes_all_variables():
    other = Inside(alone)
    assert other.entered.wait(10)
    step = Inside(stepping)
    assert not step.entered.wait(SOON)
    other.end()
    assert step.entered.wait(10)
    step.end()


def test_steps_let_what_waits_go_first():
    step = Inside(stepping)
    assert step.entered.wait(10)
    other = Inside(alone)
    assert not other.entered.wait(SOON)
    later = Inside(stepping)
    assert not later.entered.wait(SOON)
    step.end()
    assert other.entered.wait(10) and not later.entered.wait(SOON)
    other.end()
    assert later.entered.wait(10)
    later.end()


def test_both_can_be_nested():
    def nested():
        with stepping, alone, stepping, alone:
            done.set()

    done = threading.Event()
    threading.Thread(target=nested, daemon=True).start()
    assert done.wait(10)
    step = Inside(stepping)
    assert step.entered.wait(10)
    step.end()


def test_a_step_that_waits_for_the_waiting_thread_ends(monkeypatch, caplog):
    """As a generator of batches that runs another model eagerly."""
    monkeypatch.setattr(making, "_LONGEST_WAIT_SECONDS", SOON)
    monkeypatch.setattr(making._state, "gave_up", False)
    step = Inside(stepping)
    assert step.entered.wait(10)
    other = Inside(alone)
    assert other.entered.wait(10)
    other.end()
    # The next one knows.
    monkeypatch.setattr(making, "_LONGEST_WAIT_SECONDS", 30.0)
    other = Inside(alone)
    assert other.entered.wait(10)
    other.end(), step.end()
    (said,) = [r for r in caplog.records if "eager run" in r.message]
    assert said.levelname == "WARNING"
