"""Determines the result of a run from the exits of its workers. Pure."""

import dataclasses
import signal
from collections.abc import Sequence

from kerasmgpu.errors import listed
from kerasmgpu.job import loss
from kerasmgpu.job.exit_status import EXIT_PREEMPTED

_MOST_NAMED = 16  # Workers listed in a message, which every machine gets.


@dataclasses.dataclass(frozen=True)
class End:
    """Exit of one worker.

    Args:
        number: Integer, the worker's index.
        host: String, its machine.
        status: Integer, its exit status; negative: the signal.
        seconds: Number, seconds from the start of the run to the exit.
        was_asked: Boolean, whether it had been told to end before.
        lines: Sequence of strings, its last lines of output.
    """

    number: int
    host: str
    status: int
    seconds: float
    was_asked: bool = False
    lines: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Result of a run of all workers.

    Args:
        kind: String, `"done"`, `"failed"`, `"saved"` (some worker ended with
            75), `"lost"` (a machine) or `"ended"` (by a signal to a launcher).
        status: Integer, the exit status of the job if this was its last run.
        message: String, the result in one or several lines.
        culprit: `End` of the worker that failed first, or `None`.
    """

    kind: str
    status: int
    message: str
    culprit: End | None = None


def of(
    ends: Sequence[End],
    signal_number: int | None = None,
    lost: Sequence[tuple[str, float]] = (),
) -> Verdict:
    """Returns the verdict on a run.

    The culprit is the first worker that failed before all were told to end. If
    a machine was lost before that failure, the machine is the cause instead. If
    that worker reported another worker as lost, the culprit is the lost one.

    Args:
        signal_number: Integer, the signal to a launcher that ended the run.
        lost: Sequence of lost machines: name, and seconds from the start of
            the run to its last message.
    """
    by_itself = [e for e in ends if not e.was_asked]
    failed = [e for e in by_itself if e.status not in (0, EXIT_PREEMPTED)]
    saved = any(e.status == EXIT_PREEMPTED for e in ends)
    if lost and not (failed and failed[0].seconds < lost[0][1]):
        names = ", ".join(name for name, _ in lost)
        return Verdict("lost", 1, f"the job lost {names}")
    lost_worker = _lost_worker(failed or by_itself, ends)
    if lost_worker is not None:
        return _worker_lost(*lost_worker, ends)
    if failed:
        return _failed(failed[0], ends)
    if signal_number is None and len(by_itself) < len(ends) and not saved:
        return _ended_early(by_itself, ends)
    failed = [e for e in ends if e.status not in _ends_of_asked(signal_number)]
    if failed and failed[0].status != EXIT_PREEMPTED:
        return _failed(failed[0], ends)
    if saved:
        return Verdict("saved", EXIT_PREEMPTED, "the workers saved and ended")
    # Without a signal such a status was a failure, above.
    if signal_number and (any(e.status for e in ends) or not ends):
        name = _signal_name(signal_number)
        return Verdict("ended", 128 + signal_number, f"ended by {name}")
    return Verdict("done", 0, "")


def _ends_of_asked(signal_number: int | None) -> tuple[int, ...]:
    """Returns exit statuses that count as ended on request.

    They include a kill after the grace period.
    """
    if signal_number is None:  # Workers told to end after another one saved.
        return (0, -signal.SIGTERM, -signal.SIGKILL)
    numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal_number}
    return (0, *(-n for n in numbers), *(128 + n for n in numbers))


def _lost_worker(
    by_itself: Sequence[End], ends: Sequence[End]
) -> tuple[End, str, End] | None:
    """Returns the lost worker, the reason and its witness, or `None`.

    The witness is the first worker to end.
    """
    found = loss.lost_in(by_itself[0].lines) if by_itself else None
    if found is None:
        return None
    number, reason = found
    for end in ends:
        if end.number == number:
            return end, reason, by_itself[0]
    return None


def _worker_lost(
    culprit: End, reason: str, witness: End, ends: Sequence[End]
) -> Verdict:
    """Returns the verdict on a lost worker: it failed, or it hung."""
    if not culprit.was_asked and culprit.status not in (0, EXIT_PREEMPTED):
        return _failed(culprit, ends)
    lines = [
        f"worker {culprit.number} on {culprit.host} is {loss.state(reason)}; "
        f"reported by worker {witness.number} on {witness.host}. Its last lines:",
        *_last_lines(culprit),
    ]
    return Verdict("failed", 1, "\n".join(lines), culprit)


def _last_lines(end: End) -> list[str]:
    return [f"  | {line}" for line in end.lines or ["(it printed nothing)"]]


def _failed(culprit: End, ends: Sequence[End]) -> Verdict:
    place = f"worker {culprit.number} on {culprit.host}"
    lines = [
        f"{place} failed first: {describe_status(culprit.status)} after "
        f"{culprit.seconds:.1f} s. Its last lines:",
        *_last_lines(culprit),
    ]
    others = [e for e in ends if not e.was_asked and e is not culprit]
    for end in others[:_MOST_NAMED]:
        gap = end.seconds - culprit.seconds
        when = f"{abs(gap):.1f} s {'later' if gap >= 0 else 'earlier'}"
        lines.append(
            f"  worker {end.number} on {end.host}: "
            f"{describe_status(end.status)}, {when}"
        )
    if len(others) > _MOST_NAMED:
        lines.append(f"  and {len(others) - _MOST_NAMED} more")
    return Verdict(
        "failed", exit_status(culprit.status), "\n".join(lines), culprit
    )


def _ended_early(by_itself: Sequence[End], ends: Sequence[End]) -> Verdict:
    early = listed([f"{e.number} on {e.host}" for e in by_itself], _MOST_NAMED)
    rest = listed([e.number for e in ends if e.was_asked], _MOST_NAMED)
    return Verdict(
        "failed",
        1,
        f"worker {early} ended without error while {rest} continued: all "
        "workers must run the same number of steps. To wait longer, raise "
        "--exit_wait_seconds",
        by_itself[0],
    )


def exit_status(status: int) -> int:
    """Converts a status of `subprocess` to a shell's: 128 + the signal."""
    return 128 - status if status < 0 else status


def describe_status(status: int) -> str:
    """Describes an exit status of `subprocess`."""
    if status >= 0:
        return f"exit status {status}"
    hint = " (out of memory?)" if status == -signal.SIGKILL else ""
    return f"killed by {_signal_name(-status)}{hint}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
