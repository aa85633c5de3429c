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


def in_order(nodes: Sequence[WrittenNode]) -> Iterator[tuple[str, int]]:
    """Yields `("start", number)` and `("finish", number)` for all nodes.

    A collective ends when nothing else can run: on GPUs kernels are started much
    faster than they run, and between workers sending takes longer.

    Args:
        nodes: The nodes of a function.
    """
    missing = [len(node.inputs) + len(node.controls) for node in nodes]
    tasks = collections.deque(
        number for number, count in enumerate(missing) if not count
    )
    threads: list[collections.deque[int]] = [
        collections.deque() for _ in range(THREADS)
    ]
    sending: collections.deque[int] = collections.deque()
    while True:
        for thread in threads:
            if not thread and tasks:
                thread.append(tasks.popleft())
        started = [(one, one.popleft()) for one in threads if one]
        for _, number in started:
            yield "start", number
        for thread, number in started:
            if nodes[number].type.startswith("Collective"):
                sending.append(number)
                continue
            yield "finish", number
            thread += _ready(nodes[number], missing)
        if not started:
            if not sending:
                return
            number = sending.popleft()
            yield "finish", number
            tasks += _ready(nodes[number], missing)


def _ready(node: WrittenNode, missing: list[int]) -> list[int]:
    """Decrements `missing` for a finished node's followers.

    Returns those that are now ready.
    """
    ready = []
    for follower in node.followers:
        missing[follower] -= 1
        if not missing[follower]:
            ready.append(follower)
    return ready
