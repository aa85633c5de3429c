"""Frees data set iterators in a background thread.

When an iterator is freed, TensorFlow joins the thread that autotunes its
pipeline. That thread sleeps for 10 ms, 20 ms, 40 ms … up to a minute, and is
woken before its cancellation flag is set (`CancellationManager::StartCancel`
sets it last), so on a busy machine it often goes back to sleep: an epoch of
11 s then ends 9 s late. Nothing else depends on the freed iterator, so a
background thread does the join: not the end of `fit` but only the exit of the
program waits for it. Where devices have pipelines of their own, each has such a
thread, and they are joined at the same time: one after the other, 16 took six
minutes. Seen on TensorFlow 2.18 and 2.21.

An iterator whose pipeline runs Python code is freed by whoever drops it, so that
the code doesn't run later; at the latest before the interpreter ends. Freed while
it ends, its thread would wait for Python, and the process for the thread: a
program hung at its end now and then, after a `fit` that an exception had broken
off. (So does TensorFlow alone, 2.21.)
"""

import gc
import sys
import threading
import time
import weakref
from typing import Any

import tensorflow as tf

from kerasmgpu.engine import exit_waits

NAME = "kerasmgpu-free-iterator"
"""Name of the threads, one for each resource of an iterator."""

_that_run_python: "weakref.WeakSet[Any]" = weakref.WeakSet()

_POLL_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 10


def free(iterator: Any) -> None:
    """Frees an iterator's resources in threads, once it is garbage-collected.

    Args:
        iterator: A `tf.data.Iterator` or `tf.distribute.DistributedIterator`.
    """
    resources = tf.nest.flatten(iterator, expand_composites=True)
    finalizer = weakref.finalize(iterator, _start, resources)
    finalizer.atexit = False


def free_before_exit(iterator: Any) -> None:
    """Frees an iterator that runs Python code before the interpreter ends.

    Args:
        iterator: A `tf.data.Iterator` or `tf.distribute.DistributedIterator`.
    """
    _that_run_python.add(iterator)


def _free_that_run_python() -> None:
    if _that_run_python:
        gc.collect()
    for iterator in list(_that_run_python):
        vars(iterator).clear()


def _start(resources: list[Any]) -> None:
    while resources:
        last = [resources.pop()]
        thread = threading.Thread(
            target=_free, args=(last,), name=NAME, daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # The interpreter is shutting down.
            last.clear()


def _free(last: list[Any]) -> None:
    # The last reference must be this thread's, and the iterator, while it is
    # being finalized, may still hold one.
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    resource = last.pop()
    while sys.getrefcount(resource) > 2 and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _join() -> None:
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join()


exit_waits.add(_join)
exit_waits.add(_free_that_run_python)
