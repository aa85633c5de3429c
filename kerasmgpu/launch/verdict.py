"""How a job's run ended, from how its workers ended. Pure."""

import dataclasses
import signal

from kerasmgpu.job import loss
from kerasmgpu.job.exit_status import EXIT_PREEMPTED

_MOST_NAMED = 16  # Workers in a message, which goes to every machine.


@dataclasses.dataclass(frozen=True)
class End:
    """How one worker ended.

    Args:
        number: Integer, the worker's number.
        host: String, where it ran.
        status: Integer, its exit status; negative: the signal.
        seconds: Number, after how many seconds of the run.
        was_asked: Boolean, whether it had been told to end before.
        lines: Sequence of strings, the last that it printed.
    """

    number: int
    host: str
    status: int
    seconds: float
    was_asked: bool = False
    lines: tuple = ()


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How a run of all workers ended.

    Args:
        kind: String, `"done"`, `"failed"`, `"saved"` (some worker ended with
            75), `"lost"` (a machine) or `"ended"` (by a signal to a launcher).
        status: Integer, the exit status of the job if this was its last run.
        message: String, what happened, several lines.
        culprit: `End` of the worker that failed first, or `None`.
    """

    kind: str
    status: int
    message: str
    culprit: End | None = None


def of(ends, signal_number=None, lost=()):
    """Judges a run.

    A worker that ended after all had been told to is not blamed for it, and
    of those that failed by themselves the first is the one; but not if a
    machine was gone before, with the workers that it would need, nor if it
    says that another worker is lost: then that one is.

    Args:
        ends: Sequence of `End`, in the order of death.
        signal_number: Integer, the signal to a launcher that ended the run.
        lost: Sequence of machines that were lost: name, and after how many
            seconds of the run it was last heard of.

    Returns:
        A `Verdict`.
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
    if any(e.status for e in ends) or (signal_number and not ends):
        name = _signal_name(signal_number)
        return Verdict("ended", 128 + signal_number, f"ended by {name}")
    return Verdict("done", 0, "")


def _ends_of_asked(signal_number):
    """Statuses of those that end as told, or are killed after the grace."""
    if signal_number is None:  # Of those that followed one that saved.
        return (0, -signal.SIGTERM, -signal.SIGKILL)
    numbers = {signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal_number}
    return (0, *(-n for n in numbers), *(128 + n for n in numbers))


def _lost_worker(by_itself, ends):
    """The worker that the first to end says is lost, and why; or `None`."""
    found = by_itself and loss.lost_in(by_itself[0].lines)
    for end in ends if found else ():
        if end.number == found[0]:
            return end, found[1], by_itself[0]
    return None


def _worker_lost(culprit, reason, witness, ends):
    """A worker failed by itself, or it stood still and was told to end."""
    if not culprit.was_asked and culprit.status not in (0, EXIT_PREEMPTED):
        return _failed(culprit, ends)
    lines = [
        f"worker {culprit.number} on {culprit.host} is gone: {reason}; "
        f"worker {witness.number} on {witness.host} noticed. Its last lines:",
        *_last_lines(culprit),
    ]
    return Verdict("failed", 1, "\n".join(lines), culprit)


def _last_lines(end):
    return [f"  | {line}" for line in end.lines or ["(it printed nothing)"]]


def _failed(culprit, ends):
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


def _ended_early(by_itself, ends):
    early = _named([f"{e.number} on {e.host}" for e in by_itself])
    rest = _named([str(e.number) for e in ends if e.was_asked])
    return Verdict(
        "failed",
        1,
        f"worker {early} ended without error while {rest} went on: all "
        "workers must take the same number of steps. More time to end: "
        "--exit_wait_seconds",
        by_itself[0],
    )


def _named(workers):
    """The first of them, as a list in words."""
    rest = len(workers) - _MOST_NAMED
    more = [f"{rest} more"] if rest > 0 else []
    return ", ".join(workers[:_MOST_NAMED] + more)


def exit_status(status):
    """What a shell says of a status of `subprocess`: 128 + the signal."""
    return 128 - status if status < 0 else status


def describe_status(status):
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    hint = " (out of memory?)" if status == -signal.SIGKILL else ""
    return f"killed by {_signal_name(-status)}{hint}"


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
