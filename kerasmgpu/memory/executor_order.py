"""Models the order in which TensorFlow's executors start and finish nodes.

An executor keeps a queue of nodes that are ready, and takes the first
(`ExecutorState::Process` in TensorFlow's `executor.cc`). Nodes that are ready
at the start, and those that become ready when a collective ends, are handed to
several threads. On GPUs these threads start all kernels in this order; on CPUs
others may run expensive kernels meanwhile, which is not modelled.
"""

import collections
from collections.abc import Iterator, Sequence

from kerasmgpu.memory.written_function import WrittenNode

THREADS = 2
"""Number of threads that are modelled. With a single thread, kernels that read
a collective's result would run one after the other; measured ones overlap."""


def in_order(
    nodes: Sequence[WrittenNode], places: Sequence[str] | None = None
) -> Iterator[tuple[str, int]]:
    """Yields `("start", number)` and `("finish", number)` for all nodes.

    A collective ends when nothing else can run: on GPUs kernels are started much
    faster than they run, and between workers sending takes longer.

    Args:
        places: For each node the name of its executor: devices have one each.
            Default: there is one.
    """
    executors = _Executors(nodes, places or [""] * len(nodes))
    sending: collections.deque[int] = collections.deque()
    while True:
        started = executors.take()
        for _, number in started:
            yield "start", number
        for thread, number in started:
            if nodes[number].type.startswith("Collective"):
                sending.append(number)
                continue
            yield "finish", number
            executors.finish(number, thread)
        if not started:
            if not sending:
                return
            number = sending.popleft()
            yield "finish", number
            executors.finish(number)


class _Executors:
    """The queues of executors, and of their threads."""

    def __init__(
        self, nodes: Sequence[WrittenNode], places: Sequence[str]
    ) -> None:
        self._nodes = nodes
        self._places = places
        self._missing = [len(one.inputs) + len(one.controls) for one in nodes]
        self._tasks: dict[str, collections.deque[int]] = {}
        for number, count in enumerate(self._missing):
            queue = self._tasks.setdefault(places[number], collections.deque())
            if not count:
                queue.append(number)
        self._threads = [
            (place, collections.deque[int]())
            for place in self._tasks
            for _ in range(THREADS)
        ]

    def take(self) -> list[tuple[collections.deque[int], int]]:
        """Takes a node for each thread, as pairs of its queue and the node."""
        for place, thread in self._threads:
            if not thread and self._tasks[place]:
                thread.append(self._tasks[place].popleft())
        return [(one, one.popleft()) for _, one in self._threads if one]

    def finish(
        self, number: int, thread: collections.deque[int] | None = None
    ) -> None:
        """Queues a node's followers that are now ready.

        In its thread's queue, if they have the same executor.
        """
        for follower in self._nodes[number].followers:
            self._missing[follower] -= 1
            if not self._missing[follower]:
                place = self._places[follower]
                queue = self._tasks[place]
                if thread is not None and place == self._places[number]:
                    queue = thread
                queue.append(follower)
