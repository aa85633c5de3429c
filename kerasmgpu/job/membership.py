"""A worker joins its job: starts the watch and shares the RNG state."""

import atexit
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import tensorflow as tf
from absl import logging

from kerasmgpu import signals
from kerasmgpu.engine import context, devices, exit_waits, given_gpus
from kerasmgpu.engine.joint_calls import joint_calls
from kerasmgpu.errors import InputError
from kerasmgpu.job import (
    introduction,
    job_token,
    loss,
    rendezvous,
    seeds,
    workers,
)
from kerasmgpu.job.addresses import split_address
from kerasmgpu.job.attempts import Attempts
from kerasmgpu.job.cluster import Worker
from kerasmgpu.job.lockstep import Lockstep, Where
from kerasmgpu.job.places import Places
from kerasmgpu.job.rendezvous import START_VARIABLE
from kerasmgpu.job.watch import (
    TIMEOUT_SECONDS,
    TIMEOUT_VARIABLE,
    FirstWorker,
    OtherWorker,
)
from kerasmgpu.user_lines import frames_of_error, frames_of_thread

PORT_VARIABLE = "KERASMGPU_WATCH_PORT"
"""Environment variable for the port of the first worker's watch."""

_SECONDS_BEHIND_THE_LOST = 2.0
_SECONDS_TO_NOTICE = 2.0
_SECONDS_TO_BE_TOLD = 10.0

_OF_A_LOSS = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnavailableError,
)
"""Errors that TensorFlow raises in the remaining workers."""

_DIFFERENT = re.compile(r"Collective instance \d+ expected type")
"""TensorFlow's error in a worker whose collective is not that of the others."""

_joined: list[Worker] = []
_watches: list[FirstWorker | OtherWorker] = []
_places: list[Places] = []
_attempts: list[Attempts] = []


def start_timeout_seconds(environ: Mapping[str, str] = os.environ) -> float:
    """Returns the start time-out of a job in seconds, 300 by default.

    Raises:
        InputError: If the environment's value is not a number above 0.
    """
    return _seconds(environ.get(START_VARIABLE, 300.0), START_VARIABLE)


def timeout_seconds(
    given: float | None = None, environ: Mapping[str, str] = os.environ
) -> float:
    """Returns the heartbeat time-out in seconds.

    Args:
        given: Number, or `None` for the environment variable that our launcher
            sets (by its flag `--timeout_seconds`); 30 without it.

    Raises:
        InputError: If it is no number above 0.
    """
    value: Any = given
    if given is None:
        value = environ.get(TIMEOUT_VARIABLE, TIMEOUT_SECONDS)
    return _seconds(value, f"timeout_seconds or {TIMEOUT_VARIABLE}")


def _seconds(value: Any, name: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(
            "The time-out of a job must be a number of seconds above 0. "
            f"Received: {value!r} ({name})"
        )
    return seconds


def has_joined() -> bool:
    """Whether this process is a worker of a job already."""
    return bool(_joined)


def of_the_same_job(worker: Worker) -> Worker:
    """Returns the worker as which this process has joined, with all addresses.

    Args:
        worker: `cluster.Worker`, the place in a job of a further strategy.

    Raises:
        InputError: If it isn't the place of the strategy before.
    """
    joined = _joined[-1]
    if (worker.index, worker.num_workers) != (joined.index, joined.num_workers):
        raise InputError(
            "All strategies of a process must be of one job. Received: worker "
            f"{worker.index} of {worker.num_workers}; this process is worker "
            f"{joined.index} of {joined.num_workers}"
        )
    return joined


def meet(
    worker: Worker, seconds: float, token: str, divide_gpus: bool
) -> Worker:
    """Meets the job's other workers, before TensorFlow starts.

    Deletes this worker's token file afterwards.

    Args:
        worker: `cluster.Worker`, this worker's place in the job.
        seconds: See `start_timeout_seconds`.
        divide_gpus: Boolean, whether this worker uses only its share of GPUs
            that other workers see, too.

    Returns:
        The `cluster.Worker` with the addresses of all workers.

    Raises:
        InputError: If a worker is missing or misconfigured, there are fewer
            GPUs than workers on a machine, or TensorFlow sees fewer than the
            launcher gave this worker.
    """
    if divide_gpus:
        given_gpus.require()
    worker = introduction.introduce(worker, seconds, token)
    gpus = devices.visible_gpus() if divide_gpus else {}
    own = rendezvous.meet(worker, seconds, token, list(gpus))
    job_token.discard()  # Before TensorFlow opens its port.
    if own != list(gpus):
        devices.use_only([gpus[uuid] for uuid in own])
    return worker


def join(
    strategy: tf.distribute.Strategy,
    worker: Worker,
    seconds: float,
    token: str,
    where: Where,
) -> None:
    """Joins the job; all workers call this once the engine runs.

    Starts the watch and the `Lockstep`, installs handlers for SIGTERM, uncaught
    exceptions and the exit, and shares the first worker's RNG state.

    Args:
        seconds: See `timeout_seconds`.
        where: See `lockstep.Lockstep`.
    """
    signals.end_on_sigterm()

    def on_lost(lost: int, reason: str) -> None:
        message = loss.line(worker, lost, reason)
        if loss.names_one(reason) and lost != worker.index:
            _, here = where(frames_of_thread(joint_calls.thread))
            message = f"{message[:-1]}: it is {here}."
        logging.error("%s", message)
        context.abort_collectives(message)

    watch: FirstWorker | OtherWorker
    if worker.is_first:
        port = _port(os.environ)
        try:
            watch = first = FirstWorker(
                worker.num_workers, seconds, on_lost, port, token
            )
        except OSError as error:
            raise InputError(
                f"{PORT_VARIABLE}={port} can't be used on this machine "
                f"({error.strerror}). Give each job a port of its own"
            ) from None
        workers.broadcast(strategy, first.invitation())
    else:
        invitation = workers.broadcast(strategy, b"")
        host, _ = split_address(worker.addresses[0])
        watch = OtherWorker(
            worker.index, host, invitation, seconds, on_lost, token
        )
    _joined.append(worker)
    _watches.append(watch)
    told = Places(worker.index, worker.num_workers, watch.tell, joint_calls)
    watch.hear_place = told.hear
    _places.append(told)
    Lockstep(watch, told, joint_calls, seconds, where).start()
    exit_waits.install()  # It runs behind `_leave`, which is registered later.
    atexit.register(_leave, watch, worker)
    sys.excepthook = functools.partial(
        _report, watch, worker, where, sys.excepthook
    )
    seeds.share(strategy)


def attempts(num_workers: int) -> Attempts:
    """Returns the `Attempts` of the job that this worker has joined.

    The first call creates them; all strategies of the process share them, since
    they train one after the other.
    """
    if not _attempts:
        watch = _watches[-1]
        is_first = isinstance(watch, FirstWorker)
        made = Attempts(
            watch.tell,
            num_workers - 1 if is_first else 0,
            context.abort_step,
            lambda: watch.wait_for_a_loss(0.0),
        )
        watch.hear_attempts = made.hear
        _attempts.append(made)
    return _attempts[-1]


def places() -> Places | None:
    """Returns the `Places` of this worker's job; `None` without a job."""
    return _places[-1] if _places else None


def _report(
    watch: FirstWorker | OtherWorker,
    worker: Worker,
    where: Where,
    report: Callable[..., Any],
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Replaces `sys.excepthook`: omits tracebacks caused by a lost worker.

    The loss is already reported in one line. Passes other errors to `report`,
    the hook before, and tells them to the other workers.
    """
    follows = issubclass(kind, _OF_A_LOSS)
    if follows and watch.wait_for_a_loss(_SECONDS_TO_NOTICE):
        return
    report(kind, error, trace)
    reason = f"{kind.__name__}: {error}"
    if _DIFFERENT.search(str(error)):
        _, there = where(frames_of_error(trace))
        reason = loss.parted_alone(there)
        logging.error("%s", loss.line(worker, worker.index, reason))
    if not (sys.flags.interactive or hasattr(sys, "ps1")):
        # Now, not at the exit, for which Python waits for other threads.
        leave(reason)
        if _DIFFERENT.search(str(error)):
            # A launcher ends the others with this worker: they say it first.
            time.sleep(_SECONDS_TO_BE_TOLD)


def leave(failure: str) -> None:
    """Tells the other workers that this one ends with an error, one line of text.

    Uncaught exceptions are reported automatically. Call this if a program
    catches its error and exits, so that the others need not wait.
    """
    for watch in _watches:
        atexit.unregister(_leave)
        watch.leave(failure)
    _watches.clear()


def _port(environ: Mapping[str, str]) -> int:
    text = environ.get(PORT_VARIABLE, "0")
    if not text.isdigit() or int(text) > 65535:
        raise InputError(
            f"{PORT_VARIABLE} must be a port number, 0 for any free one. "
            f"Received: {text!r}"
        )
    return int(text)


def _leave(watch: FirstWorker | OtherWorker, worker: Worker) -> None:
    """Exit handler: waits for the other workers unless one has failed."""
    error = getattr(sys, "last_value", None)
    known = watch.lost is not None
    watch.leave(None if error is None else f"{type(error).__name__}: {error}")
    if watch.lost is None or watch.reason is None:
        return
    if not known:
        text = loss.line(worker, watch.lost, watch.reason, has_ended=True)
        logging.error("%s", text)
    # A scheduler finds the first failure by time: the lost worker's comes first.
    time.sleep(_SECONDS_BEHIND_THE_LOST)
