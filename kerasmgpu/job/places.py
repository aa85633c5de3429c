"""Where the workers of a job are, and which of them the others wait for.

A worker whose step takes long tells the first worker where it is, over the
connection of the watch. Imports no TensorFlow.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

IN_STEP, IN_VALIDATION, TOGETHER = "step", "validation", "together"
"""Kinds of places with collectives: workers wait for one another there."""

_WAITS = (IN_STEP, IN_VALIDATION, TOGETHER)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a worker is.

    Attributes:
        steps: Integer, steps that it has completed in this `fit`.
        kind: String: `IN_STEP`, `IN_VALIDATION`, `TOGETHER`, or another word.
        text: String, the same in words: `"in callback Save.on_epoch_end"`.
        seconds: Float, how long it has been there.
    """

    steps: int
    kind: str
    text: str
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.text} since {self.seconds:.0f} s, after {self.steps} steps"
        )


class Places:
    """The last known place of each worker; complete on the first one.

    Args:
        index: Integer, index of this worker.
        send: Function that sends a message to the first worker.
        clock: Function that returns seconds.
    """

    def __init__(
        self,
        index: int,
        send: Callable[..., None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index, self._send, self._clock = index, send, clock
        self._heard: dict[int, tuple[float, Place]] = {}

    def tell(self, place: Place) -> None:
        """Tells the first worker where this one is."""
        if self._index:
            self._send(place=dataclasses.asdict(place))
        else:
            self._heard[0] = self._clock(), place

    def hear(self, worker: int, place: dict[str, Any]) -> None:
        """Takes the message of another worker."""
        self._heard[worker] = self._clock(), Place(**place)

    def known(self, seconds: float) -> dict[int, Place]:
        """Returns places that were told at most so many seconds ago."""
        since = self._clock() - seconds
        return {
            worker: place
            for worker, (time_told, place) in sorted(self._heard.items())
            if time_told >= since
        }


def verdict(places: Mapping[int, Place], num_workers: int) -> str:
    """Returns which worker the others wait for, as far as places tell.

    Args:
        places: Maps indices of workers to their `Place`s.
        num_workers: Integer, workers of the job.

    Example:

    >>> sleeping = Place(41, "callback", "in callback Save.on_epoch_end", 34)
    >>> verdict({0: Place(41, "step", "in the step", 33), 1: sleeping}, 2)
    'worker 1 is in callback Save.on_epoch_end since 34 s, after 41 steps; \
worker 0 waits for it in the collectives of step 42'
    """
    silent = [n for n in range(num_workers) if n not in places]
    if silent:
        return (
            f"{_named(silent)} {_verb(silent, 'runs', 'run')} on, or can't "
            "say where; the others wait"
        )
    late = [n for n, place in places.items() if place.kind not in _WAITS]
    waiting = [n for n in places if n not in late]
    kinds = {places[n].kind for n in waiting}
    steps = {places[n].steps for n in waiting}
    if late and waiting:
        return (
            f"{_told(places, late)}; {_named(waiting)} "
            f"{_verb(waiting, 'waits', 'wait')} for "
            f"{'it' if len(late) == 1 else 'them'} in "
            + (
                f"the collectives of step {max(steps) + 1}"
                if kinds == {IN_STEP}
                else "the collectives of validation"
                if kinds == {IN_VALIDATION}
                else "a collective of all workers"
            )
        )
    if late:
        return _told(places, late)
    if len(kinds) > 1 or len(steps) > 1:
        return (
            f"workers run different collectives: {_told(places, waiting)}. All "
            "workers must run the same steps, evaluations and callbacks"
        )
    return (
        f"all workers are {places[0].text}: one computes, or a collective "
        "waits for the network; TensorFlow doesn't tell which"
    )


def _told(places: Mapping[int, Place], workers: list[int]) -> str:
    return "; ".join(f"worker {n} is {places[n]}" for n in workers)


def _named(workers: list[int]) -> str:
    if len(workers) == 1:
        return f"worker {workers[0]}"
    return f"workers {', '.join(map(str, workers))}"


def _verb(workers: list[int], one: str, several: str) -> str:
    return one if len(workers) == 1 else several
