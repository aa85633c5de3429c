"""Runs programs of a table in child processes, each with a time-out.

Children are forked from a process that has imported TensorFlow and run no
operation: importing takes longer than most programs. Results are kept in a file,
by which a command that was cut off is continued.
"""

import collections
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import time

from absl import app

_CONTEXT = multiprocessing.get_context("fork")


@dataclasses.dataclass
class _Child:
    process: multiprocessing.Process
    results: multiprocessing.connection.Connection
    name: str
    remaining: list
    begun: float


def chosen(words, groups):
    """Names of programs of which a word is part of the group or the name.

    Args:
        words: List of strings; empty for all programs.
        groups: `{name: group}`.
    """
    words = [word.lower() for word in words]
    found = [
        name
        for name, group in groups.items()
        if not words or any(w in f"{group}: {name}".lower() for w in words)
    ]
    if not found:
        raise app.UsageError(f"No program's name has any of {words}.")
    return found


def run_missing(results, facts, work, records, jobs, timeout_seconds, show):
    """Runs what a file of results lacks, and appends it.

    Args:
        results: Path of the file: a line of JSON per run.
        facts: Dictionary, such as versions of packages: results of others are
            ignored.
        work: `{name: variants}`, see `run_all`.
        records: See `run_all`.
        jobs: See `run_all`.
        timeout_seconds: See `run_all`.
        show: Function from a result to a text, for a line of progress.

    Returns:
        `{(name, variant): result}` of all that the file has for these facts now.
    """
    began = time.monotonic()
    path, known = pathlib.Path(results), {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        record = json.loads(line)
        if {name: record.pop(name, None) for name in facts} == facts:
            known[record.pop("name"), record.pop("variant")] = record
    missing = {
        name: [v for v in variants if (name, v) not in known]
        for name, variants in work.items()
    }
    missing = {name: variants for name, variants in missing.items() if variants}
    count = sum(map(len, missing.values()))
    print(f"{len(work)} programs, {count} runs to do.", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:

        def tell(name, variant, result):
            nonlocal count
            count -= 1
            known[name, variant] = result
            record = {"name": name, "variant": variant, **facts, **result}
            print(json.dumps(record), file=file, flush=True)
            print(
                f"{time.monotonic() - began:5.0f} s, {count:3} left: {name}, "
                f"{variant}: {show(result)}",
                flush=True,
            )

        run_all(records, missing, jobs, timeout_seconds, tell)
    return known


def records(measures, name, variants, tell):
    """Tells one record per variant of a program.

    Args:
        measures: Function from a name to a function from variants to results.
        name: The program's.
        variants: List of strings.
        tell: Function that takes a dictionary: `{"begins": variant}` before a
            run, and the run's results behind it.
    """
    measure = None
    for variant in list(variants):
        tell({"begins": variant})
        # Whatever is raised is the result that the table reports.
        try:
            measure = measure or measures(name)
            result = measure(variant)
        except Exception as error:  # noqa: B902
            text = " ".join(str(error).split())[:1500]
            result = {"error": type(error).__name__, "notes": [text]}
        tell({"ends": variant, **result})


def run_all(records, work, jobs, timeout_seconds, tell):
    """Runs programs; tells of each run's end, whatever becomes of processes.

    Args:
        records: Function like `records`, but for its first argument, which a
            child calls.
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
        return "Timed out"
    return f"Ended with status {child.process.exitcode}"
