"""Cases of `shared_program`: random programs, compared with one device.

A case is a seed and a number of programs. All workers draw the same ones. A
program that waits for ever is ended.
"""

import faulthandler
import sys
import types
from unittest import mock

SECONDS = 100
"""The longest that a program may take."""


def run(strategy, argument, files):
    """Returns how many programs were run, and each that does something else."""
    seed, number = map(int, argument.split())
    strategy = strategy()
    # The strategy made the devices, which that module would make otherwise.
    sys.modules["tests.conftest"] = types.ModuleType("tests.conftest")
    import hypothesis

    from kerasmgpu.strategies.sharding import Sharding
    from tests.partitioner import checking, search

    sharding = Sharding("weights", 0, lambda: (strategy.num_replicas_in_sync,))

    def of_job(number, shard):
        strategy.extended.axis_to_shard = sharding if shard else None
        return strategy

    count, failed = 0, []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        search.SETTINGS,
        max_examples=number,
        # To look for a shorter one, workers would have to agree on what failed.
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(search.programs())
    def all_do_the_same(program):
        nonlocal count
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            search.check_program(search.on(strategy, program))
        except checking.Discarded:
            return
        except checking.Difference as difference:
            if "travel between replicas as numbers" in str(difference):
                return  # Strings, which workers can't send each other.
            failed.append(f"{difference}\n{program.script()}")
        count += 1

    with (
        mock.patch.object(checking, "_replicas", lambda _: strategy.replicas),
        mock.patch.object(checking, "_strategy", of_job),
    ):
        all_do_the_same()
    strategy.extended.axis_to_shard = None
    return count, failed
