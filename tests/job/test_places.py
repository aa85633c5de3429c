"""Where workers are, and which of them the others wait for."""

import pytest

from kerasmgpu.engine.joint_calls import JointCalls
from kerasmgpu.job.places import Place, Places, difference, parted, verdict

STEP = Place("step", "in step 42 of epoch 1", 33)
SLEEPS = Place("callback", "in callback Save.on_epoch_end", 34)


@pytest.mark.parametrize(
    "places, said",
    [
        (
            {0: STEP, 1: SLEEPS, 2: STEP},
            "worker 1 is in callback Save.on_epoch_end since 34 s; workers "
            "0, 2 wait for it in step 42 of epoch 1",
        ),
        (
            {0: STEP, 1: STEP, 2: STEP},
            "all workers are in step 42 of epoch 1: one computes, or a "
            "collective waits for the network; TensorFlow doesn't tell which",
        ),
        (
            {0: STEP, 2: STEP},
            "worker 1 runs on, or can't say where; the others wait",
        ),
        (
            {0: SLEEPS, 1: SLEEPS, 2: STEP},
            "worker 0 is in callback Save.on_epoch_end since 34 s; worker 1 is "
            "in callback Save.on_epoch_end since 34 s; worker 2 waits for them "
            "in step 42 of epoch 1",
        ),
    ],
)
def test_the_worker_that_others_wait_for_is_named(places, said):
    assert verdict(places, 3) == said


def at(text, count, *calls, kind="step"):
    return Place(kind, text, 33, count, list(calls))


def test_workers_that_have_parted_are_found_by_their_calls():
    step = at("in step 11 of epoch 1", 12, "reduction", "step", "step")
    end = at("at the end of epoch 1", 12, "reduction", "step", "reduction")
    assert parted({0: step, 1: end}) == [1]
    assert parted({0: end, 1: step, 2: step}) == [0]
    assert parted({0: step, 1: step}) == []
    # What one has begun and the other not yet is no difference.
    ahead = at("at the end of epoch 1", 13, "step", "step", "reduction")
    assert parted({0: step, 1: ahead}) == []
    # Nothing is known of calls long ago.
    assert parted({0: at("", 90, "step"), 1: at("", 9, "reduction")}) == []


def test_what_workers_do_differently_is_told_with_advice():
    places = {
        0: at("in step 11 of epoch 1", 12),
        1: at("at the end of epoch 1, after 10 steps", 12, kind="together"),
        2: at("in step 11 of epoch 1", 12),
    }
    assert difference(places, [1]) == (
        "worker 1 is at the end of epoch 1, after 10 steps, workers 0, 2 are "
        "in step 11 of epoch 1. All workers must run the same steps, "
        "evaluations, predictions and callbacks: give each the same number of "
        "batches, and the same steps_per_epoch"
    )
    assert verdict({n: places[n] for n in (0, 1)}, 2).startswith("worker ")


def test_places_are_sent_to_the_first_worker_and_grow_old():
    now, calls = 0.0, JointCalls()
    calls.note("step")
    first = Places(0, 2, lambda **_: None, calls, clock=lambda: now)
    sent = []
    other = Places(1, 2, lambda **message: sent.append(message), calls)
    other.waits_for_input = lambda: True
    late = other.here("step", "in step 2", 7.0)
    assert late == Place("input", "waiting for input", 7.0, 1, ["step"])
    other.tell(late)
    first.hear(1, sent[0]["place"])
    now = 8.0
    first.tell(STEP)
    assert first.known(seconds=10.0) == {0: STEP, 1: late}
    assert first.known(seconds=5.0) == {0: STEP}
