"""Lets the first worker read variables of which the others give their parts.

Reading a sharded variable, or a sum over the replicas, is a collective of all
workers. Where the first worker alone needs the values, it announces each
variable, and the others take part in its collective: they hold one variable at
a time, and need not know which ones the first worker reads, in which order.
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
    """Whether reading any of some `tf.Variable`s is a collective."""
    return any(
        isinstance(one, ShardedVariable) or is_sum(one) for one in variables
    )


def run(
    strategy: ExactStrategy, what: str, function: Callable[[], None]
) -> None:
    """Runs a function on the first worker only; the others join its reads.

    All workers must call it: it is collective.

    Args:
        what: String, what the function does, for the error of a worker that
            calls it alone.
        function: Function without arguments, which reads variables.

    Raises:
        InputError: If not all workers call it within
            `strategy.extended.read_timeout_seconds`.
    """
    extended = strategy.extended
    if extended.announce is not None:
        return function()  # Inside another `run`, on the first worker.
    _wait_for_workers(strategy, what)
    if not strategy.is_first_worker:
        while (number := strategy.from_first_worker(_END)) != _END:
            extended.give(int(number))
        return

    def announce(variable: Any) -> None:
        number = extended.number_of(variable)
        extended.announce = None  # Set, it refuses other collectives.
        strategy.from_first_worker(str(number).encode())
        extended.announce = announce

    extended.announce = announce
    try:
        with extended.alone():
            function()
    finally:
        extended.announce = None
        strategy.from_first_worker(_END)


def _wait_for_workers(strategy: ExactStrategy, what: str) -> None:
    """Waits for all workers, with a time-out, which collectives lack."""
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
