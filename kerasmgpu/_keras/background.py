"""Iterators of data sets are freed in a thread of their own.

TensorFlow ends the thread that tunes a pipeline when its iterator is freed, and
waits for it. That thread sleeps for 10 ms, 20 ms, 40 ms … up to a minute, and
is woken before it can see that it should end; on a busy machine it often sleeps
on (`CancellationManager::StartCancel` sets its flag last). An epoch of 11 s then
ends 9 s late. Nothing else waits for an iterator that is no longer read, so it
is left to wait alone; only the end of the program waits for the last of them,
as the end of `fit` would have. Seen on TensorFlow 2.18 and 2.21.
"""

import sys
import threading
import time
import weakref

import tensorflow as tf

NAME = "kerasmgpu-free-iterator"
"""Name of the threads."""

_POLL_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 10


def free(iterator):
    """Frees what an iterator holds in a thread, once the iterator is gone.

    Args:
        iterator: A `tf.data.Iterator` or `tf.distribute.DistributedIterator`.
    """
    resources = tf.nest.flatten(iterator, expand_composites=True)
    finalizer = weakref.finalize(iterator, _start, resources)
    finalizer.atexit = False


def _start(resources):
    thread = threading.Thread(target=_free, args=(resources,), name=NAME)
    try:
        thread.start()
    except RuntimeError:  # Python is about to end.
        resources.clear()


def _free(resources):
    # Whoever lets go last frees them, and the iterator is still on its way.
    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while resources:
        resource = resources.pop()
        while sys.getrefcount(resource) > 2 and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
