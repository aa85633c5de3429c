"""State machine of a job on rank 0: starts, ends and restarts the workers.

Pure: events and the time are arguments of calls, messages to the launchers are
calls of a function. `controller.py` connects it to sockets.
"""

import dataclasses
import secrets
import signal
from collections.abc import Callable, Sequence

from kerasmgpu.job.addresses import Host
from kerasmgpu.job.exit_status import EXIT_PREEMPTED
from kerasmgpu.launch import verdict

_SECONDS_AT_ONCE = 10.0  # An earlier failure is the program's or settings'.
_LONGEST_BACK_OFF = 60.0
# A usage error (Python's and most programs'), not executable, not found.
_HOPELESS_STATUSES = (2, 126, 127)


@dataclasses.dataclass(frozen=True)
class Policy:
    """Time-outs and restarts of a job.

    Args:
        max_restarts: Integer, maximum number of restarts of the job.
        min_workers: Integer, minimum number of workers to restart with after a
            machine is lost; `None`: all.
        grace_seconds: Number, time for workers to save and end after SIGTERM.
        exit_wait_seconds: Number, time from the first worker that ends without
            error to the last.
        start_wait_seconds: Number, time for all machines to join at the start.
        restart_wait_seconds: Number, time for a lost machine to come back.
    """

    max_restarts: int
    min_workers: int | None
    grace_seconds: float
    exit_wait_seconds: float
    start_wait_seconds: float
    restart_wait_seconds: float


class Job:
    """The state of a job.

    States: `"gathering"` until all machines have joined, `"preparing"` while
    they choose ports, `"running"`, `"ending"` from the order to end until the
    last worker has exited, `"finished"`.

    Args:
        hosts: Sequence of `addresses.Host`, by rank.
        send: Function of a rank and a message's fields as keywords; sends it
            to that rank's launcher.
        say: Function of a string, shows it on rank 0.
        now: Number, the time in seconds.
        new_token: Function that returns an unpredictable string, from which
            launchers derive the token of a run.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        policy: Policy,
        send: Callable[..., None],
        say: Callable[[str], None],
        now: float,
        new_token: Callable[[], str] = secrets.token_hex,
    ) -> None:
        self._hosts = hosts
        self._policy = policy
        self._send = send
        self._say = say
        self._new_token = new_token
        self._joined: set[int] = set()
        self._leaving: set[int] = set()  # Ranks whose launcher was told to end.
        self._signal: int | None = None  # What ended the whole job.
        self._restarts = 0
        self._has_run_long = False
        self._last_verdict: verdict.Verdict | None = None
        self._was_killed = False
        self._deadline: float | None = None
        self._alive: set[int] = set()  # Numbers of running workers.
        self._ends: list[verdict.End] = []
        self._lost: list[tuple[str, float]] = []
        self._gather(now, 0.0, policy.start_wait_seconds)

    @property
    def is_finished(self) -> bool:
        """Boolean, whether all launchers were sent the result of the job."""
        return self.state == "finished"

    def on_joined(self, rank: int, now: float) -> None:
        """Called when a launcher has connected."""
        self._joined.add(rank)
        self._leaving.discard(rank)
        if len(self._hosts) > 1:
            later = self.state not in ("gathering", "finished")
            note = "; it takes part after the next restart" if later else ""
            self._say(f"{self._name(rank)} joined{note}")
        self.on_time(now)

    def on_lost(
        self, rank: int, reason: str, last_heard: float, now: float
    ) -> None:
        """Called when a launcher's connection closed or its heartbeats ended.

        `last_heard` is the time of its last message.
        """
        if rank not in self._joined:
            return
        self._joined.remove(rank)
        if self.state == "finished":
            return
        self._say(f"lost {self._name(rank)}: {reason}")
        if self.state == "preparing" and rank in self._asked:
            self._gather(now, 1.0, self._policy.restart_wait_seconds)
        elif self.state in ("running", "ending") and rank in self._ranks:
            if rank not in self._leaving:
                seconds = last_heard - self._started
                self._lost.append((self._name(rank), seconds))
            self._alive -= set(self._numbers[rank])
            self._end_workers()
            self._judge_if_all_ended(now)
        self.on_time(now)

    def on_signal(self, rank: int, number: int, now: float) -> None:
        """Called when a launcher got a signal to end.

        SIGINT on any rank and any signal on rank 0 end the whole job.
        """
        if rank == 0 or number == signal.SIGINT:
            self._signal = self._signal or number
        self._leaving.add(rank)
        self._say(
            f"{signal.Signals(number).name} to the launcher of "
            f"{self._name(rank)}: the workers are told to save and end"
        )
        if self.state in ("gathering", "preparing"):
            judged = verdict.of([], number)
            if self._signal:
                self._finish(judged)
            else:
                self._send_finish(rank, judged)
                self.on_lost(rank, "it was told to end", now, now)
        elif self.state == "running":
            self._end_workers()

    def on_kill(self) -> None:
        """Called at a second Ctrl-C: kills all workers."""
        if self._was_killed:  # Every machine may report a Ctrl-C.
            return
        self._was_killed = True
        for rank in self._joined:
            self._send(rank, type="end", grace_seconds=0)

    def on_ports(
        self, rank: int, run: int, ports: list[int], now: float
    ) -> None:
        """Called when a launcher has chosen its workers' ports."""
        if self.state != "preparing" or run != self._restarts:
            return
        if rank in self._asked:
            self._ports[rank] = ports
        if len(self._ports) == len(self._asked):
            self._start(now)

    def on_ended(
        self,
        rank: int,
        run: int,
        number: int,
        status: int,
        lines: list[str],
        now: float,
    ) -> None:
        """Called when a worker has ended."""
        if run != self._restarts or number not in self._alive:
            return
        self._alive.remove(number)
        self._ends.append(
            verdict.End(
                number=number,
                host=self._hosts[rank].name,
                status=status,
                seconds=now - self._started,
                was_asked=self.state == "ending",
                lines=tuple(lines),
            )
        )
        if status not in (0, EXIT_PREEMPTED):
            self._end_workers()
        elif self._deadline is None:
            self._deadline = now + self._policy.exit_wait_seconds
        self._judge_if_all_ended(now)

    def on_time(self, now: float) -> None:
        """Checks deadlines; must be called regularly."""
        if self.state == "gathering":
            all_there = len(self._joined) == len(self._hosts)
            if all_there and now >= self._earliest:
                self._prepare(sorted(self._joined))
            elif not all_there and self._is_past_deadline(now):
                missing = set(range(len(self._hosts))) - self._joined
                self._go_on_without(sorted(missing))
        elif self.state == "running" and self._is_past_deadline(now):
            self._end_workers()

    def _is_past_deadline(self, now: float) -> bool:
        return self._deadline is not None and now >= self._deadline

    def _gather(self, now: float, earliest: float, longest: float) -> None:
        self.state = "gathering"
        self._earliest = now + earliest
        self._deadline = now + earliest + longest

    def _go_on_without(self, missing: Sequence[int]) -> None:
        """Restarts with the remaining machines, if there are enough workers."""
        names = ", ".join(self._name(rank) for rank in missing)
        ranks = sorted(self._joined)
        left = sum(self._hosts[rank].num_workers for rank in ranks)
        total = sum(host.num_workers for host in self._hosts)
        needed = self._policy.min_workers
        if self._last_verdict is None:
            seconds = self._policy.start_wait_seconds
            message = f"{names} did not join within {seconds:g} s"
        elif needed is None or left < needed:
            message = (
                f"{names} did not come back within "
                f"{self._policy.restart_wait_seconds:g} s: {left} of {total} "
                f"workers left, --min_workers={needed or total}"
            )
        else:
            self._say(
                f"continuing with {left} of {total} workers, without {names}"
            )
            self._prepare(ranks)
            return
        status = self._last_verdict.status if self._last_verdict else 1
        self._finish(verdict.Verdict("lost", status, message))

    def _prepare(self, ranks: list[int]) -> None:
        self.state = "preparing"
        self._asked, self._ports = set(ranks), {}
        for rank in ranks:
            self._send(rank, type="prepare", run=self._restarts)

    def _start(self, now: float) -> None:
        """Sends all workers' addresses and the token to every machine."""
        self.state = "running"
        self._started = now
        self._deadline = None
        self._ends, self._lost = [], []
        self._was_killed = False
        self._leaving = set()  # Launchers that left earlier don't affect it.
        self._ranks = sorted(self._ports)
        addresses, self._numbers = [], {}
        for rank in self._ranks:
            first = len(addresses)
            addresses += [
                self._hosts[rank].address(p) for p in self._ports[rank]
            ]
            self._numbers[rank] = list(range(first, len(addresses)))
        self._alive = set(range(len(addresses)))
        token = self._new_token()
        for rank in self._ranks:
            self._send(
                rank,
                type="start",
                run=self._restarts,
                addresses=addresses,
                token=token,
                numbers=self._numbers[rank],
            )

    def _end_workers(self) -> None:
        if self.state != "running":
            return
        self.state = "ending"
        for rank in self._joined:
            grace = self._policy.grace_seconds
            self._send(rank, type="end", grace_seconds=grace)

    def _judge_if_all_ended(self, now: float) -> None:
        if self._alive or self.state not in ("running", "ending"):
            return
        number = self._signal
        if number is None and self._leaving:
            number = signal.SIGTERM
        judged = verdict.of(self._ends, number, self._lost)
        self._has_run_long |= now - self._started > _SECONDS_AT_ONCE
        self._last_verdict = judged
        reason = self._reason_to_stop(judged)
        if reason is None:
            self._restart(judged, now)
        else:
            self._finish(judged, reason)

    def _reason_to_stop(self, judged: verdict.Verdict) -> str | None:
        """Returns the reason for no restart; `None` to restart."""
        if judged.kind == "done" or self._signal is not None:
            return ""
        if self._policy.max_restarts == 0:
            return ""
        if self._restarts == self._policy.max_restarts:
            return f"all restarts of --max_restarts={self._restarts} are used"
        culprit = judged.culprit
        if culprit and culprit.status > 0 and not self._has_run_long:
            if culprit.status in _HOPELESS_STATUSES or self._restarts > 0:
                return "not restarted: it failed at once, and would again"
        return None

    def _restart(self, judged: verdict.Verdict, now: float) -> None:
        wait = min(2.0**self._restarts, _LONGEST_BACK_OFF)
        self._restarts += 1
        self._say(judged.message)
        self._say(
            f"restart {self._restarts} of {self._policy.max_restarts} "
            f"in {wait:g} s"
        )
        # Launchers that were told to end stop now; new ones may join later.
        for rank in self._leaving & self._joined:
            self._send_finish(rank, judged)
        self._joined -= self._leaving
        self._gather(now, wait, self._policy.restart_wait_seconds)

    def _finish(self, judged: verdict.Verdict, reason: str = "") -> None:
        self.state = "finished"
        message = "\n".join(filter(None, [judged.message, reason]))
        if judged.kind == "saved":
            message += "\nstart the same command again to resume"
        judged = dataclasses.replace(judged, message=message)
        for rank in sorted(self._joined):
            self._send_finish(rank, judged)

    def _send_finish(self, rank: int, judged: verdict.Verdict) -> None:
        self._send(
            rank,
            type="finish",
            status=judged.status,
            message=judged.message,
            culprit=judged.culprit and judged.culprit.number,
        )

    def _name(self, rank: int) -> str:
        return f"machine {self._hosts[rank].name} (rank {rank})"
