"""Runs many random programs on one device and on replicas.

    python -m tests.partitioner --programs=10000 --seed=1

Each program with different results on replicas is shrunk by Hypothesis and
printed as a complete script. A process runs some hundreds of programs, since
TensorFlow keeps all traced graphs in memory.
"""

import multiprocessing
import multiprocessing.pool
import os
import signal
import tempfile
import time

from absl import app, flags

from tests.partitioner.work import work

_PROGRAMS = flags.DEFINE_integer(
    "programs", 1000, "Number of programs.", lower_bound=1
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the first programs.")
_PROCESSES = flags.DEFINE_integer(
    "processes", 1, "Processes that run at a time.", lower_bound=1
)

_OF_ONE_SEED = 50
"""Programs per seed; a seed's run ends at its first failure."""

_IN_A_PROCESS = 10
"""Seeds per process."""

_LONGEST_S = 300
"""Seconds after which a running program counts as hung."""


def main(argv):
    """Prints progress and failures; the exit status is 1 if there are any."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    number = -(-_PROGRAMS.value // _OF_ONE_SEED)
    seeds = range(_SEED.value, _SEED.value + number)
    shares = [
        seeds[first : first + _IN_A_PROCESS]
        for first in range(0, number, _IN_A_PROCESS)
    ]
    totals = [0, 0, 0]
    with multiprocessing.pool.ThreadPool(_PROCESSES.value) as pool:
        for counts in pool.imap_unordered(_in_a_process, shares):
            totals = [a + b for a, b in zip(totals, counts)]
            run, discarded, failed = totals
            print(
                f"{run} programs were run, {failed} failed; one device "
                f"refused {discarded} more.",
                flush=True,
            )
    return 1 if failed else 0


def _in_a_process(seeds):
    """Returns the numbers of programs that ran, were refused and failed."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    run = refused = failed = 0
    with tempfile.NamedTemporaryFile("r", suffix=".py") as last:
        process = context.Process(
            target=work, args=(seeds, _OF_ONE_SEED, last.name, send)
        )
        process.start()
        send.close()
        try:
            while True:
                while not receive.poll(10):
                    if time.time() - os.stat(last.name).st_mtime > _LONGEST_S:
                        process.kill()
                counts, failure = receive.recv()
                run, refused = run + counts[0], refused + counts[1]
                if failure is not None:
                    failed += 1
                    print(f"\n{failure}\n", flush=True)
        except EOFError:
            process.join()
        if process.exitcode:
            failed += 1
            status = process.exitcode
            ended = signal.Signals(-status).name if status < 0 else status
            print(f"\n# The process ended with {ended} in this program:")
            print(last.read(), flush=True)
    return run, refused, failed


if __name__ == "__main__":
    app.run(main)
