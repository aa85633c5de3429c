"""Searches for programs whose results differ on replicas."""

import dataclasses
import pathlib

import hypothesis
import tensorflow as tf

from tests import conftest  # noqa: F401 - Eight logical CPU devices.
from tests.partitioner.checking import Difference, Discarded, check
from tests.partitioner.programs import programs

SETTINGS = hypothesis.settings(
    database=None,
    deadline=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(hypothesis.HealthCheck),
)
"""No deadline: programs are slow. No health checks: many are discarded."""


# TensorFlow logs an error for every program that it refuses.
tf.get_logger().setLevel("CRITICAL")


def search(seed, number, path):
    """Runs programs until one fails.

    Args:
        seed: Seed of the programs.
        number: Number of programs.
        path: File for the running program's script, for the parent process in
            case of a crash.

    Returns:
        `(counts, failure)`: the number of programs that ran and the number
        that were refused; the script of the shortest failed program, or
        `None`.
    """
    run, refused, failure = 0, 0, None

    @hypothesis.seed(seed)
    @hypothesis.settings(SETTINGS, max_examples=number)
    @hypothesis.given(programs())
    def all_do_the_same(program):
        nonlocal run, refused, failure
        pathlib.Path(path).write_text(program.script(), "utf-8")
        try:
            check_program(program)
        except Discarded:
            refused += failure is None
        except Difference as difference:
            lines = [f"Seed {seed}.", *str(difference).splitlines()]
            comment = "".join(f"# {line}\n" for line in lines)
            failure = comment + program.script()
            raise
        else:
            run += failure is None

    try:
        all_do_the_same()
    except Difference:
        run += 1
    return (run, refused), failure


def on(strategy, program, **settings):
    """Returns a program with whole batches on a strategy's replicas."""
    setting = dataclasses.replace(
        program.setting,
        num_replicas=strategy.num_replicas_in_sync,
        shares=False,
        **settings,
    )
    return dataclasses.replace(program, setting=setting)


def check_program(program):
    """Runs one program; see `checking.check`.

    A difference in 32 bits that vanishes in 64 bits counts as rounding, such as
    after a cancellation that is exactly 0 on one device.
    """
    try:
        _check(program)
    except Difference:
        if program.precision != "float32" or _differs(program.in_64_bits()):
            raise


def _differs(program):
    try:
        _check(program)
    except (Difference, Discarded):
        return True
    return False


def _check(program):
    check(
        program.function(),
        program.inputs,
        program.variables,
        program.setting,
        program.precision,
    )
