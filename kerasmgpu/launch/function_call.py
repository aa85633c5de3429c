"""Calls a function in the worker processes and returns their results.

A folder holds the files of a call: the pickled function and arguments, and each
worker's result or traceback.
"""

import functools
import io
import linecache
import marshal
import os
import pathlib
import pickle
import sys
import traceback
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any

import cloudpickle

from kerasmgpu import stderr_filter
from kerasmgpu.atomic_files import atomic_write
from kerasmgpu.errors import InputError, one_line
from kerasmgpu.job.cluster import from_environment

_CALL = "call"
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from kerasmgpu.launch import function_call; "
    "function_call.run(sys.argv[1])"
)

_OUR_FRAMES = ("<string>", __file__)


def write(
    folder: pathlib.Path, function: Callable[..., Any], args: tuple[Any, ...]
) -> list[str]:
    """Pickles the function and its arguments.

    Functions and classes of the main program, such as a notebook's cells, are
    pickled by value, with everything of the main program that they use. Those
    of modules are pickled by name.

    Returns:
        List of strings, the command that each worker must run.

    Raises:
        InputError: If the function or an argument can't be pickled.
    """
    with open(folder / _CALL, "wb") as file:
        pickle.dump(_sources_without_files(), file)
        try:
            _Pickler(file).dump((function, args))
        except Exception as error:  # Whatever the objects' own code raises.
            raise InputError(
                "The function and its arguments can't be sent to the workers: "
                f"{one_line(error)}. Make models, data sets and strategies "
                "inside of the function, and pass arrays, numbers and names."
            ) from None
    program = _PROGRAM.format(path=sys.path)
    return [sys.executable, "-c", program, str(folder)]


def run(folder: pathlib.Path) -> None:
    """Calls the function; the main program of a worker process.

    An error ends the process with status 1; its traceback is written to the
    folder, its last line to standard error.
    """
    worker = from_environment()
    number = 0 if worker is None else worker.index
    folder = pathlib.Path(folder)
    # Left by the previous run, if the job was restarted.
    _failure(folder, number).unlink(missing_ok=True)
    sys.excepthook = functools.partial(_report, _failure(folder, number))
    stderr_filter.start_unless_asked()
    with open(folder / _CALL, "rb") as file:
        # Tracebacks and TensorFlow's AutoGraph look for the cells' source.
        linecache.cache.update(pickle.load(file))
        function, args = pickle.load(file)
    result = function(*args)
    try:
        data = io.BytesIO()
        _Pickler(data).dump(result)
    except Exception as error:  # Whatever the objects' own code raises.
        raise InputError(
            f"What the function returned ({type(result).__name__}) can't be "
            f"sent back: {one_line(error)}. Return arrays, numbers or names."
        ) from None
    _write_whole(_result(folder, number), data.getvalue())


def results(folder: pathlib.Path, num_workers: int) -> list[Any] | None:
    """Returns the results by worker; `None` if one is missing."""
    paths = [_result(folder, number) for number in range(num_workers)]
    if not all(path.exists() for path in paths):
        return None
    return [pickle.loads(path.read_bytes()) for path in paths]


def failure(folder: pathlib.Path, number: int | None) -> str | None:
    """Returns the traceback of a worker's error as a string, or `None`."""
    path = _failure(folder, number)
    return path.read_text("utf-8") if path.exists() else None


class _Pickler(cloudpickle.Pickler):
    """Keeps the file names of code, by which tracebacks find its lines.

    cloudpickle replaces them since 3.1.3. Workers run the same Python, so that
    they can read its own format of code.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


def _result(folder: pathlib.Path, number: int | None) -> pathlib.Path:
    return folder / f"result-{number}"


def _failure(folder: pathlib.Path, number: int | None) -> pathlib.Path:
    return folder / f"failure-{number}"


def _sources_without_files() -> dict[str, Any]:
    """Returns `linecache` entries of code without a file: notebook cells."""
    return {
        name: entry
        for name, entry in linecache.cache.items()
        # (size, mtime, lines, name); only files have an mtime.
        if len(entry) == 4 and entry[1] is None and not os.path.exists(name)
    }


def _report(
    path: pathlib.Path,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Replaces `sys.excepthook`: writes the traceback to a file."""
    # Without our frames that call the function.
    while (
        trace
        and trace.tb_next
        and trace.tb_frame.f_code.co_filename in _OUR_FRAMES
    ):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(kind, error, trace))
    _write_whole(path, text.encode("utf-8", "backslashreplace"))
    print(f"{kind.__name__}: {one_line(error)}", file=sys.stderr)


def _write_whole(path: pathlib.Path, data: bytes) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)
