"""Runs examples in child processes, several at a time, each with a time-out.

Children are forked from a process that has imported TensorFlow and run no
operation: importing takes longer than most examples.
"""

import collections
import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import time

_CONTEXT = multiprocessing.get_context("fork")


@dataclasses.dataclass
class _Child:
    process: multiprocessing.Process
    results: multiprocessing.connection.Connection
    name: str
    remaining: list
    begun: float


def run_all(records, work, jobs, timeout_seconds, tell):
    """Runs examples; tells of each run's end, whatever becomes of processes.

    Args:
        records: Function like `comparison.records`, which a child calls.
        work: `{name: variants}` of it.
        jobs: Most processes at a time.
        timeout_seconds: Longest time of one run.
        tell: Function of a name, a variant and its results.
    """
    waiting = collections.deque((name, list(v)) for name, v in work.items())
    children = []
    while waiting or children:
        while waiting and len(children) < jobs:
            children.append(_start(records, *waiting.popleft()))
        multiprocessing.connection.wait(
            [child.results for child in children], timeout=1.0
        )
        for child in list(children):
            alive = child.process.is_alive()
            _read(child, tell)
            late = time.monotonic() - child.begun > timeout_seconds
            if alive and not late and child.remaining:
                continue
            children.remove(child)
            why = _end(child, late)
            if child.remaining:
                tell(child.name, child.remaining.pop(0), {"error": why})
                if child.remaining:
                    waiting.appendleft((child.name, child.remaining))


def _start(records, name, variants):
    results, told = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(
        target=_run, args=(records, name, variants, told)
    )
    process.start()
    told.close()
    return _Child(process, results, name, variants, time.monotonic())


def _run(records, name, variants, told):
    """What a child does; it ends without Python's and TensorFlow's farewell."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    records(name, variants, told.send)
    told.close()
    os._exit(0)


def _read(child, tell):
    """Takes in what a child has told so far."""
    try:
        while child.results.poll():
            result = child.results.recv()
            child.begun = time.monotonic()
            variant = result.pop("ends", None)
            if variant in child.remaining:
                child.remaining.remove(variant)
                tell(child.name, variant, result)
    except EOFError:
        pass


def _end(child, late):
    """Ends a child; returns why its running variant has no results."""
    child.process.join(timeout=0.0 if late else 10.0)
    if child.process.is_alive():
        child.process.kill()
        child.process.join()
    child.results.close()
    if late:
        return "timed out"
    return f"the process ended with status {child.process.exitcode}"
