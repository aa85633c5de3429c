"""Where the workers of a job are, and which of them the others wait for.

A worker that makes no progress tells the first worker where it is, over the
connection of the watch. Imports no TensorFlow.
"""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kerasmgpu.engine.joint_calls import JointCalls

IN_STEP, IN_VALIDATION, TOGETHER = "step", "validation", "together"
"""Kinds of places with collectives: workers wait for one another there."""

_MOST_CALLS = 20
"""Names of joint calls that a worker tells."""

_WAITS = (IN_STEP, IN_VALIDATION, TOGETHER)

_SAME = "All workers must run the same steps, evaluations, predictions and callbacks"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a worker is.

    Attributes:
        kind: String: `IN_STEP`, `IN_VALIDATION`, `TOGETHER`, or another word.
        text: String, the same in words: `"in callback Save.on_epoch_end"`.
        seconds: Float, how long it has been there.
        count: Integer, joint calls that the worker has begun
            (`engine/joint_calls.py`).
        calls: List of strings, the names of the last ones.
    """

    kind: str
    text: str
    seconds: float
    count: int = 0
    calls: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.text} since {self.seconds:.0f} s"

    @property
    def waits(self) -> bool:
        """Whether the worker may be waiting for others there."""
        return self.kind in _WAITS

    def call(self, number: int) -> str | None:
        """Returns the name of the joint call `number`, counted from 1.

        `None` if the worker hasn't begun it, or it isn't among the last ones.
        """
        place = number - self.count - 1 + len(self.calls)
        return self.calls[place] if 0 <= place < len(self.calls) else None


class Places:
    """The last known place of each worker; complete on the first one.

    Args:
        send: Function that sends a message to the first worker.
        clock: Function that returns seconds.

    Attributes:
        waits_for_input: Function that returns whether a step waits for its
            batch, while a `HangWatch` runs: that callback then warns of pauses,
            and `Lockstep` doesn't. `None` without one.
    """

    def __init__(
        self,
        index: int,
        num_workers: int,
        send: Callable[..., None],
        calls: "JointCalls",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.index, self.num_workers, self._calls = index, num_workers, calls
        self._send, self._clock = send, clock
        self._heard: dict[int, tuple[float, Place]] = {}
        self.waits_for_input: Callable[[], bool] | None = None

    def here(self, kind: str, text: str, seconds: float) -> Place:
        """Returns this worker's `Place`, with its joint calls.

        The arguments are as in `Place`. A step that waits for its batch becomes
        a place of the kind `"input"`.
        """
        if kind == IN_STEP and self.waits_for_input is not None:
            if self.waits_for_input():
                kind, text = "input", "waiting for input"
        calls = self._calls.last(_MOST_CALLS)
        return Place(kind, text, seconds, self._calls.count, calls)

    def tell(self, place: Place) -> None:
        """Tells the first worker where this one is; the first one keeps it."""
        if self.index:
            self._send(place=dataclasses.asdict(place))
        else:
            self._heard[0] = self._clock(), place

    def hear(self, worker: int, place: dict[str, Any]) -> None:
        """Keeps the place that another worker tells, and when it came."""
        self._heard[worker] = self._clock(), Place(**place)

    def known(self, seconds: float) -> dict[int, Place]:
        """Returns `{worker: place}` of those told at most `seconds` ago."""
        since = self._clock() - seconds
        return {
            worker: place
            for worker, (time_told, place) in sorted(self._heard.items())
            if time_told >= since
        }


def parted(places: Mapping[int, Place]) -> list[int]:
    """Returns the workers whose joint calls are not those of the others.

    That is the smaller group where workers' calls first differ; of two equal
    ones that without the first worker. Empty if all known calls are the same.
    """
    first = max(p.count - len(p.calls) for p in places.values()) + 1
    last = min(place.count for place in places.values())
    for number in range(first, last + 1):
        groups = collections.defaultdict(list)
        for worker, place in sorted(places.items()):
            groups[place.call(number)].append(worker)
        if len(groups) > 1:
            return min(
                groups.values(), key=lambda group: (len(group), -group[0])
            )
    return []


def difference(places: Mapping[int, Place], workers: list[int]) -> str:
    """Returns what some workers do, what the others do, and how to fix it.

    Args:
        places: Maps indices of workers to their `Place`s.
        workers: Indices of the workers that differ.

    Example:

    >>> evaluates = Place("validation", "in validation after epoch 1", 31)
    >>> difference({0: Place("step", "in step 1 of epoch 2", 31), 1: evaluates}, [1])
    'worker 1 is in validation after epoch 1, worker 0 is in step 1 of epoch \
2. All workers must run the same steps, evaluations, predictions and callbacks'
    """
    others = [worker for worker in places if worker not in workers]
    groups = [*_by_text(places, workers), *_by_text(places, others)]
    told = ", ".join(
        f"{_named(group)} {_verb(group, 'is', 'are')} {text}"
        for text, group in groups
    )
    texts = " ".join(text for text, _ in groups)
    advice = ""
    if "the end of epoch" in texts and "step" in texts:
        advice = (
            ": give each the same number of batches, and the same "
            "steps_per_epoch"
        )
    return f"{told}. {_SAME}{advice}"


def verdict(places: Mapping[int, Place], num_workers: int) -> str:
    """Returns which worker the others wait for, as far as places tell.

    Args:
        places: Maps indices of workers to their `Place`s.
        num_workers: Integer, workers of the job.

    Example:

    >>> sleeping = Place("callback", "in callback Save.on_epoch_end", 34)
    >>> verdict({0: Place("step", "in step 42 of epoch 1", 33), 1: sleeping}, 2)
    'worker 1 is in callback Save.on_epoch_end since 34 s; worker 0 waits for \
it in step 42 of epoch 1'
    """
    silent = [n for n in range(num_workers) if n not in places]
    if silent:
        return (
            f"{_named(silent)} {_verb(silent, 'runs', 'run')} on, or can't "
            "say where; the others wait"
        )
    late = [n for n, place in places.items() if not place.waits]
    waiting = [n for n in places if n not in late]
    if late:
        told = "; ".join(f"worker {n} is {places[n]}" for n in late)
        for text, group in _by_text(places, waiting):
            told += (
                f"; {_named(group)} {_verb(group, 'waits', 'wait')} for "
                f"{'it' if len(late) == 1 else 'them'} {text}"
            )
        return told
    differ = parted(places)
    if differ:
        return difference(places, differ)
    if len({(place.text, place.count) for place in places.values()}) > 1:
        behind = min(place.count for place in places.values())
        return difference(
            places, [n for n in waiting if places[n].count == behind]
        )
    return (
        f"all workers are {places[0].text}: one computes, or a collective "
        "waits for the network; TensorFlow doesn't tell which"
    )


def _by_text(
    places: Mapping[int, Place], workers: list[int]
) -> list[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for worker in workers:
        groups.setdefault(places[worker].text, []).append(worker)
    return list(groups.items())


def _named(workers: list[int]) -> str:
    if len(workers) == 1:
        return f"worker {workers[0]}"
    return f"workers {', '.join(map(str, workers))}"


def _verb(workers: list[int], one: str, several: str) -> str:
    return one if len(workers) == 1 else several
