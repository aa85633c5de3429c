"""Where workers are, and which of them the others wait for."""

import pytest

from kerasmgpu.job.places import Place, Places, verdict

STEP = Place(41, "step", "in the step", 33)
SLEEPS = Place(41, "callback", "in callback Save.on_epoch_end", 34)


@pytest.mark.parametrize(
    "places, said",
    [
        (
            {0: STEP, 1: SLEEPS, 2: STEP},
            "worker 1 is in callback Save.on_epoch_end since 34 s, after 41 "
            "steps; workers 0, 2 wait for it in the collectives of step 42",
        ),
        (
            {0: STEP, 1: STEP, 2: STEP},
            "all workers are in the step: one computes, or a collective waits "
            "for the network; TensorFlow doesn't tell which",
        ),
        (
            {0: STEP, 2: STEP},
            "worker 1 runs on, or can't say where; the others wait",
        ),
        (
            {0: SLEEPS, 1: SLEEPS, 2: Place(41, "validation", "there", 3)},
            "worker 0 is in callback Save.on_epoch_end since 34 s, after 41 "
            "steps; worker 1 is in callback Save.on_epoch_end since 34 s, "
            "after 41 steps; worker 2 waits for them in the collectives of "
            "validation",
        ),
    ],
)
def test_the_worker_that_others_wait_for_is_named(places, said):
    assert verdict(places, 3) == said


@pytest.mark.parametrize(
    "other",
    [
        Place(41, "validation", "in validation", 3),
        Place(40, "step", "in the step", 3),
        Place(41, "together", "in a collective of all workers", 3),
    ],
)
def test_workers_in_different_collectives_are_told_apart(other):
    said = verdict({0: STEP, 1: other}, 2)
    assert "workers run different collectives" in said
    assert f"worker 1 is {other}" in said


def test_places_are_sent_to_the_first_worker_and_grow_old():
    now = 0.0
    first = Places(0, lambda **_: None, clock=lambda: now)
    sent = []
    other = Places(1, lambda **message: sent.append(message))
    other.tell(SLEEPS)
    first.hear(1, sent[0]["place"])
    now = 8.0
    first.tell(STEP)
    assert first.known(seconds=10.0) == {0: STEP, 1: SLEEPS}
    assert first.known(seconds=5.0) == {0: STEP}
