"""Runs test modules of Keras under a strategy, each in a process of its own."""

import multiprocessing
import os
import pickle
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest
import tensorflow as tf

import kerasmgpu
from benchmarks.exactness.keras_own.plugin import UnderStrategy
from benchmarks.exactness.keras_own.unskipped import NUM_DEVICES, Unskipped
from kerasmgpu.engine.devices import make_logical_cpus

DEVICES = ["CPU:0", "CPU:1"]

# Processes are forked from one that has imported TensorFlow but not started it,
# as a child of `processes` is.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload([__name__])


def run(module, strategy, select="", seconds=3600, checkout=None):
    """Runs the tests of a module.

    Args:
        module: Its name.
        strategy: `"kerasmgpu"`, `"stock"`, `"none"`, or `"keras.distribution"` for
            what the tests set themselves (`unskipped.py`).
        select: Expression as for `pytest -k`. Default: all tests.
        seconds: How long the process may take.
        checkout: Folder in which modules are looked for first.

    Returns:
        The `outcomes`, `errors` and `numbers` of `plugin.UnderStrategy`.

    Raises:
        RuntimeError: If the process does not end well.
    """
    with tempfile.TemporaryDirectory() as folder:
        results, log = Path(folder) / "results", Path(folder) / "log"
        is_child = multiprocessing.parent_process() is not None
        start = multiprocessing.get_context("fork") if is_child else _server
        process = start.Process(
            target=_run_here,
            args=(module, strategy, select, results, log, checkout),
        )
        process.start()
        process.join(seconds)
        if process.exitcode == 0 and results.exists():
            return pickle.loads(results.read_bytes())
        why = f"exit status {process.exitcode}"
        if process.exitcode is None:
            process.kill()
            process.join()
            why = f"did not end in {seconds} s"
        text = log.read_text(errors="replace")[-5000:] if log.exists() else ""
        raise RuntimeError(f"{module}: {strategy}: {why}\n{text}")


def _run_here(module, strategy, select, results, log, checkout):
    """Runs the tests of a module in this process, and keeps what they did."""
    _print_to(log)
    if checkout:
        sys.path.insert(0, checkout)
    under_strategy = _plugin(strategy)
    # Neither the settings nor the conftest of the project are for these tests.
    options = ["--noconftest", "-c", os.devnull, "-p", "no:cacheprovider"]
    options += ["-v", "--tb=short", "--no-header", "-k", select]
    pytest.main([*options, "--pyargs", module], plugins=[under_strategy])
    found = under_strategy
    with open(results, "wb") as file:
        pickle.dump((found.outcomes, found.errors, found.numbers), file)


def _print_to(log):
    """Sends what this process prints from now on, in C++ too, to a file."""
    sys.stdout.flush()
    with open(log, "w", encoding="utf-8") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)


def _plugin(strategy):
    if strategy == "keras.distribution":
        make_logical_cpus(NUM_DEVICES)
        return Unskipped()
    make_logical_cpus(len(DEVICES))
    return UnderStrategy(_make_strategy(strategy))


def _make_strategy(name):
    if name == "none":
        return None
    if name == "stock":
        return tf.distribute.MirroredStrategy(DEVICES)
    return kerasmgpu.MirroredStrategy(DEVICES)
