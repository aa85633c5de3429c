"""The first worker reads variables, and the others give their parts.

Reading a sharded variable, or a sum over the replicas, is a collective of all
workers. Where the first one alone needs the values, it announces each variable,
and the others take part in that one collective: they hold one variable at a
time, and need not know what the first worker reads, or in which order.
"""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from kerasmgpu.engine.exact_strategy import ExactStrategy
from kerasmgpu.errors import InputError
from kerasmgpu.partitioner.runtime.one_device import is_sum
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable

_END = b""


def are_collective(variables: Iterable[Any]) -> bool:
    """Whether reading one of some `tf.Variable`s takes all workers."""
    return any(
        isinstance(one, ShardedVariable) or is_sum(one) for one in variables
    )


def run(
    strategy: ExactStrategy, what: str, function: Callable[[], None]
) -> None:
    """Runs a function that reads variables on the first worker; collective.

    Args:
        strategy: The strategy of the job.
        what: String, what the function does, for the error of a worker that
            calls it alone.
        function: Function without arguments.

    Raises:
        InputError: If not all workers call it within
            `strategy.extended.read_timeout_seconds`.
    """
    extended = strategy.extended
    if extended.announce is not None:
        return function()  # Within another one, on the first worker.
    _wait_for_workers(strategy, what)
    if not strategy.is_first_worker:
        while (number := strategy.from_first_worker(_END)) != _END:
            extended.give(int(number))
        return

    def announce(variable: Any) -> None:
        number = extended.number_of(variable)
        extended.announce = None  # It is all workers that hear it.
        strategy.from_first_worker(str(number).encode())
        extended.announce = announce

    extended.announce = announce
    try:
        function()
    finally:
        extended.announce = None
        strategy.from_first_worker(_END)


def _wait_for_workers(strategy: ExactStrategy, what: str) -> None:
    """Waits until all workers have come here; a collective has no time-out."""
    extended = strategy.extended
    seconds = extended.read_timeout_seconds
    name = f"kerasmgpu/first worker reads/{extended.times_first_read}"
    try:
        extended.wait_for_workers(name, seconds)
    except tf.errors.DeadlineExceededError as error:
        raise InputError(
            f"Variables are sharded over {strategy.num_workers} workers: all "
            f"of them must call {what}; the first one writes. Received: a call "
            f"that not all other workers made within {seconds:g} s."
        ) from error
    extended.times_first_read += 1
