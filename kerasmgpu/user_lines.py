"""The user's line in a call stack."""

import os
import pathlib
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType

_PACKAGES = {"site-packages", "dist-packages"}


def users_line(frames: Iterable[traceback.FrameSummary]) -> str | None:
    """Returns the last line of the user's code in a call stack, or `None`.

    That is code outside Python, the installed packages and kerasmgpu.

    Args:
        frames: Iterable of `traceback.FrameSummary`, the innermost call last.

    Returns:
        String such as `"train.py, line 7: model.fit(x, y)"`, or `None`.
    """
    return next(_users_lines(frames), None)


def users_lines(frames: Iterable[traceback.FrameSummary]) -> list[str]:
    """Returns all lines of the user's code in a call stack, the innermost last.

    See `users_line`.
    """
    return list(_users_lines(frames))[::-1]


def _users_lines(
    frames: Iterable[traceback.FrameSummary],
) -> Iterator[str]:
    """Yields the lines of the user's code, the innermost first."""
    paths = sysconfig.get_paths()
    foreign = [
        os.path.realpath(paths[name])
        for name in ("stdlib", "purelib", "platlib")
    ]
    foreign.append(str(pathlib.Path(__file__).resolve().parent))
    for frame in reversed(list(frames)):
        path = os.path.realpath(frame.filename)
        is_foreign = any(path.startswith(folder) for folder in foreign)
        # Packages of another environment, that this one is built on.
        is_foreign |= bool(_PACKAGES & set(pathlib.Path(path).parts))
        if not is_foreign and os.path.exists(path):
            name = os.path.basename(path)
            yield f"{name}, line {frame.lineno}: {frame.line}"


def frames_of_thread(thread: int) -> list[FrameType]:
    """Returns the frames of a running thread, the innermost first."""
    frames = []
    frame = sys._current_frames().get(thread)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def frames_of_error(trace: TracebackType | None) -> list[FrameType]:
    """Returns the frames of an exception's traceback, the innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(trace)]
    return frames[::-1]
