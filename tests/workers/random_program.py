"""One worker of a job that runs random programs and compares with one device.

    python -m kerasmgpu.launch --num_workers=2 -- \
        -m tests.workers.random_program VIRTUAL_DEVICES SEED NUMBER

All workers draw the same programs. Prints each that does something else on the
job's replicas, and how many were run; a program that waits for ever is ended.
"""

import dataclasses
import faulthandler
import sys
import types

import kerasmgpu

SECONDS = 100
"""The longest that a program may take."""


def main(virtual_devices, seed, number):
    """Runs programs; the exit status is 1 if any of them failed."""
    strategy = kerasmgpu.strategy(virtual_devices=int(virtual_devices))
    # The strategy made the devices, which that module would make otherwise.
    sys.modules["tests.conftest"] = types.ModuleType("tests.conftest")
    import hypothesis

    from kerasmgpu.strategies.sharding import Sharding
    from tests.partitioner import checking, search

    sharding = Sharding("weights", 0, lambda: strategy.num_replicas_in_sync)

    def of_job(number, shard):
        # A process has one strategy of a job.
        strategy.extended.axis_to_shard = sharding if shard else None
        return strategy

    checking._replicas = lambda number: strategy.replicas
    checking._strategy = of_job
    run, failed = 0, 0

    @hypothesis.seed(int(seed))
    @hypothesis.settings(
        search.SETTINGS,
        max_examples=int(number),
        # To look for a shorter one, workers would have to agree on what failed.
        phases=[hypothesis.Phase.generate],
    )
    @hypothesis.given(search.programs())
    def all_do_the_same(program):
        nonlocal run, failed
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        setting = dataclasses.replace(
            program.setting,
            num_replicas=strategy.num_replicas_in_sync,
            shares=False,
        )
        try:
            search.check_program(dataclasses.replace(program, setting=setting))
        except checking.Discarded:
            return
        except checking.Difference as difference:
            if "travel between replicas as numbers" in str(difference):
                return  # Strings, which workers can't send each other.
            failed += 1
            print(f"{difference}\n{program.script()}", flush=True)
        run += 1

    all_do_the_same()
    print(f"{run} programs were run, {failed} failed.", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
