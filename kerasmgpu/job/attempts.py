"""Attempts at a step, which all workers give up together to start anew.

A worker that fails leaves the others waiting in a collective. It tells them over
the connections of the watch, each makes its collectives raise, resets them, and
waits until all have done so. Imports no TensorFlow.
"""

import threading
from collections.abc import Callable
from typing import Any

_SECONDS_TO_HEAR = 5.0
"""Longest wait, after TensorFlow's error, for the message with its reason."""

_POLL_SECONDS = 0.2


class Attempts:
    """One worker's part in the attempts of a job.

    Args:
        send: Function that sends a message to the first worker; on the first
            worker, to all others.
        num_others: Workers that the first worker waits for; 0 on the others.
        abort: Function that makes pending collectives raise. It is called when
            another worker gives up while this one's attempt runs.
        is_over: Function that returns whether a worker is lost.
    """

    def __init__(
        self,
        send: Callable[..., None],
        num_others: int,
        abort: Callable[[], None],
        is_over: Callable[[], bool],
    ) -> None:
        self._send = send
        self._num_others = num_others
        self._abort = abort
        self._is_over = is_over
        self._lock = threading.Lock()
        self._round = 0
        self._runs = False
        self._given_up = threading.Event()
        self._go = threading.Event()
        self._ready = 0

    def begin(self) -> bool:
        """Begins an attempt; returns `False` if a worker has given it up already."""
        with self._lock:
            self._runs = not self._given_up.is_set()
            return self._runs

    def end(self) -> None:
        """Ends an attempt: others' failures no longer call `abort`."""
        with self._lock:
            self._runs = False

    def give_up(self) -> None:
        """Tells the others that this worker can't complete the attempt."""
        with self._lock:
            self._given_up.set()
            number = self._round
        self._send(gives_up=number)

    def is_given_up(self) -> bool:
        """Whether a worker gave up; waits 5 seconds at most for its message."""
        return self._given_up.wait(_SECONDS_TO_HEAR)

    def meet(self) -> bool:
        """Waits until all workers call it, then lets the next attempt begin.

        Returns `False` if a worker is lost.
        """
        if self._num_others:
            self._count()
        else:
            self._send(ready=self._round)
        while not self._go.wait(_POLL_SECONDS):
            if self._is_over():
                return False
        self._go.clear()
        return True

    def hear(self, message: dict[str, Any]) -> None:
        """Takes a message of another worker."""
        if "gives_up" in message:
            self._hear_of_failure(message["gives_up"])
        elif "ready" in message:
            self._count()
        elif "go" in message:
            self._start()

    def _hear_of_failure(self, number: int) -> None:
        with self._lock:
            if number != self._round or self._given_up.is_set():
                return
            self._given_up.set()
        if self._num_others:
            self._send(gives_up=number)
        # Not after `end`: the step may have failed by itself meanwhile, and
        # its collectives have been reset for the next attempt.
        with self._lock:
            if self._runs and number == self._round:
                self._abort()

    def _count(self) -> None:
        with self._lock:
            self._ready += 1
            if self._ready <= self._num_others:
                return
            self._ready = 0
        self._start()
        self._send(go=True)

    def _start(self) -> None:
        with self._lock:  # Here: the next round's messages may follow.
            self._round += 1
            self._given_up.clear()
        self._go.set()
