"""Tells where a thread is in training, by its Python stack.

Nothing is recorded while training runs: the stack is read when it is needed.
"""

import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType

import keras
from keras.callbacks import CallbackList
from keras.src.backend.tensorflow import trainer as trainer_module

from kerasmgpu._keras.iterators import EpochSteps
from kerasmgpu._keras.step_hooks import HookedSteps
from kerasmgpu._keras.steps import PredictSteps, Steps
from kerasmgpu.engine.extended import WorkerExtended
from kerasmgpu.job.places import IN_STEP, IN_VALIDATION, TOGETHER
from kerasmgpu.partitioner.runtime.one_device import OneDevice
from kerasmgpu.user_lines import frames_of_thread, users_line, users_lines

TRACING, IN_CALLBACK, BETWEEN = "tracing", "callback", "between"
"""Kinds of places, besides those of `job.places`."""

_OF_ALL = (
    OneDevice._reduce_to.__code__,
    OneDevice._batch_reduce_to.__code__,
    OneDevice._gather_to_implementation.__code__,
    WorkerExtended._broadcast.__code__,
    WorkerExtended.wait_for_workers.__code__,
)
"""Outside of steps, all collectives go through these."""

_STEPS = (
    HookedSteps.__call__.__code__,
    Steps.__call__.__code__,
    PredictSteps.__call__.__code__,
)

_LOOPS = ("fit", "evaluate", "predict")


def of(frames: Sequence[FrameType]) -> tuple[str, str]:
    """Returns the kind of a thread's place in training, and a text about it.

    Args:
        frames: Frames of the thread, the innermost first.
    """
    loops = [frame for frame in frames if _is_loop(frame)]
    inner = frames[: frames.index(loops[0])] if loops else frames
    codes = {frame.f_code for frame in inner}
    is_of_all = any(code in codes for code in _OF_ALL)
    callback = _callback(inner)
    if callback is not None:
        text = f"in callback {callback}{_of_loop(loops, ' of ')}"
        if not is_of_all:
            return IN_CALLBACK, text
        return TOGETHER, f"in a collective of all workers {text}"
    names = {frame.f_code.co_name for frame in inner}
    if is_of_all:
        return TOGETHER, _in_collective(loops, inner, names)
    if "func_graph_from_py_func" in names:
        return TRACING, f"tracing a function{_of_loop(loops, ' in ')}"
    if not loops:
        line = users_line(_summaries(frames))
        where = f"in {line}" if line else "at the end of its program"
        return (IN_STEP if codes & set(_STEPS) else BETWEEN), where
    in_validation = len(loops) > 1 and loops[0].f_code.co_name == "evaluate"
    step = _step(loops[0])
    if codes & set(_STEPS):
        kind = IN_VALIDATION if in_validation else IN_STEP
        return kind, f"in {step} of {_of_loop(loops)}"
    if in_validation:
        return IN_VALIDATION, f"in {_of_loop(loops)}"
    return BETWEEN, f"between two steps of {_of_loop(loops)}"


def _is_loop(frame: FrameType) -> bool:
    """Whether a frame is of Keras's `fit`, `evaluate` or `predict`."""
    code = frame.f_code
    return (
        code.co_name in _LOOPS and code.co_filename == trainer_module.__file__
    )


def _callback(frames: Sequence[FrameType]) -> str | None:
    """Returns the name of the outermost callback hook that runs, or `None`."""
    found = None
    for frame in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.callbacks.Callback) and not isinstance(
            owner, CallbackList
        ):
            found = f"{type(owner).__name__}.{frame.f_code.co_name}"
    return found


def _in_collective(
    loops: Sequence[FrameType], inner: Sequence[FrameType], names: set[str]
) -> str:
    """Describes the place of a collective outside of steps and callbacks."""
    line = users_line(_summaries(inner))
    if not loops or line is not None:
        return "in a collective of all workers" + (f", {line}" if line else "")
    if EpochSteps.__iter__.__code__ in {frame.f_code for frame in inner}:
        return f"at the start of {_of_loop(loops)}"
    if "_get_metrics_result_or_logs" not in names:
        return f"in a collective of all workers in {_of_loop(loops)}"
    variables = loops[0].f_locals
    text = f"at the end of {_of_loop(loops)}"
    steps = getattr(variables.get("epoch_iterator"), "steps_done", None)
    if getattr(variables.get("self"), "stop_training", False):
        return f"{text}, which stop_training has ended"
    return text if steps is None else f"{text}, after {steps} steps"


def _of_loop(loops: Sequence[FrameType], before: str = "") -> str:
    """Returns `before` and what the innermost loop runs; empty if no loop."""
    if not loops:
        return ""
    name = loops[0].f_code.co_name
    if name != "fit" and len(loops) > 1:
        callback = _callback(list(_between(loops[0], loops[1])))
        if callback is not None:
            return f"{before}{name} in callback {callback}"
        return f"{before}the validation of {_of_loop(loops[1:])}"
    epoch = loops[0].f_locals.get("epoch")
    return before + (name if epoch is None else f"epoch {epoch + 1}")


def _between(inner: FrameType, outer: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = inner
    while frame is not None and frame is not outer:
        yield frame
        frame = frame.f_back


def _step(loop: FrameType) -> str:
    iterator = loop.f_locals.get("epoch_iterator")
    if iterator is None or not getattr(iterator, "steps_asked", 0):
        return "the step"
    first, last = iterator.steps_done + 1, iterator.steps_asked
    return f"step {last}" if first == last else f"steps {first} to {last}"


def _summaries(frames: Sequence[FrameType]) -> list[traceback.FrameSummary]:
    """Converts frames for `users_line`, the innermost last."""
    return [
        traceback.FrameSummary(
            frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        )
        for frame in reversed(frames)
    ]


def users_frames() -> list[str]:
    """Returns the lines of the user's code in which threads of this process are.

    The innermost last, for each thread that has such lines.
    """
    found = []
    for thread in sys._current_frames():
        if thread != threading.get_ident():
            lines = users_lines(_summaries(frames_of_thread(thread)))
            found += [line for line in lines if line not in found]
    return found


def stacks(first: int) -> str:
    """Returns the Python stacks of all threads, that of the thread `first` first."""
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
