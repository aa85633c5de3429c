"""Where a thread in training is, read from its Python stack.

Nothing is recorded while training runs: a stack tells it when it is needed.
"""

import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

import keras
from keras.callbacks import CallbackList

from kerasmgpu._keras.step_hooks import HookedSteps
from kerasmgpu.job.places import IN_STEP, IN_VALIDATION, TOGETHER
from kerasmgpu.partitioner.one_device import OneDevice

TRACING, IN_CALLBACK, BETWEEN = "tracing", "callback", "between"
"""Kinds of places, besides those of `job.places`."""

_OF_ALL = (
    OneDevice._reduce_to.__code__,
    OneDevice._gather_to_implementation.__code__,
)
"""Outside of steps, all collectives go through these."""


def of(thread: int) -> tuple[str, str]:
    """Returns the kind of a thread's place in training, and words for it.

    Args:
        thread: Integer, identifier of the thread that runs `fit`.
    """
    frames = list(_outwards(sys._current_frames().get(thread)))
    callback = None
    for frame in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.callbacks.Callback) and not isinstance(
            owner, CallbackList
        ):
            name = f"{type(owner).__name__}.{frame.f_code.co_name}"
            callback = IN_CALLBACK, f"in callback {name}"
        if frame.f_code.co_name == "fit" and isinstance(owner, keras.Model):
            break
    names = [frame.f_code.co_name for frame in frames]
    if any(frame.f_code in _OF_ALL for frame in frames):
        within = f" {callback[1]}" if callback else ""
        return TOGETHER, f"in a collective of all workers{within}"
    if callback is not None:
        return callback
    if "func_graph_from_py_func" in names:
        return TRACING, "tracing a function"
    if "evaluate" in names:
        return IN_VALIDATION, "in validation"
    if any(frame.f_code is HookedSteps.__call__.__code__ for frame in frames):
        return IN_STEP, "in the step"
    return BETWEEN, "between two steps"


def stacks(first: int) -> str:
    """Returns the Python stacks of all threads.

    Args:
        first: Integer, identifier of the thread to begin with.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    order = sorted(frames, key=lambda thread: thread != first)
    parts = []
    for thread in order:
        if thread == threading.get_ident():
            continue
        lines = "".join(traceback.format_stack(frames[thread])).rstrip()
        name = names.get(thread, "without a name, such as TensorFlow's")
        parts.append(f"thread {thread} ({name}):\n{lines}")
    return "\n".join(parts)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yields frames from the innermost one on."""
    while frame is not None:
        yield frame
        frame = frame.f_back
