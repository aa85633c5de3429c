"""A call of a function in other processes: there, and what came of it back.

The files of a call are in a folder: the function and its arguments, and from
each worker a result or a traceback.
"""

import functools
import linecache
import os
import pathlib
import pickle
import sys
import traceback

import cloudpickle

from kerasmgpu.commands import quiet
from kerasmgpu.commands.complete_files import complete
from kerasmgpu.errors import InputError
from kerasmgpu.job.cluster import from_environment

_CALL = "call"
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; "
    "from kerasmgpu.launch import function_call; "
    "function_call.run(sys.argv[1])"
)

_OUR_FRAMES = ("<string>", __file__)


def write(folder, function, args):
    """Writes down what is to be called.

    Functions and classes of the main program, a notebook's cells say, go along
    whole, with what they use of it; those of modules by their names.

    Args:
        folder: `pathlib.Path` of the call's folder.
        function: What to call.
        args: Tuple, its positional arguments.

    Returns:
        The command, a list of strings, that each worker is to run.

    Raises:
        InputError: If something among it can't be written down.
    """
    with open(folder / _CALL, "wb") as file:
        pickle.dump(_sources_without_files(), file)
        try:
            cloudpickle.dump((function, args), file)
        except Exception as error:  # Whatever the objects' own code raises.
            raise InputError(
                "The function and its arguments can't be sent to the workers: "
                f"{_one_line(error)}. Make models, data sets and strategies "
                "inside of the function, and pass arrays, numbers and names."
            ) from None
    program = _PROGRAM.format(path=sys.path)
    return [sys.executable, "-c", program, str(folder)]


def run(folder):
    """Calls the function; what a worker's process does.

    An error ends the process with status 1; its traceback goes to the folder,
    its last line to standard error.

    Args:
        folder: String, the path of the call's folder.
    """
    worker = from_environment()
    number = 0 if worker is None else worker.index
    folder = pathlib.Path(folder)
    # Of a run before, if the job was started anew.
    _failure(folder, number).unlink(missing_ok=True)
    sys.excepthook = functools.partial(_report, _failure(folder, number))
    quiet.start_unless_asked()
    with open(folder / _CALL, "rb") as file:
        # Tracebacks and TensorFlow's AutoGraph look for the cells' source.
        linecache.cache.update(pickle.load(file))
        function, args = pickle.load(file)
    result = function(*args)
    try:
        data = cloudpickle.dumps(result)
    except Exception as error:  # Whatever the objects' own code raises.
        raise InputError(
            f"What the function returned ({type(result).__name__}) can't be "
            f"sent back: {_one_line(error)}. Return arrays, numbers or names."
        ) from None
    _write_whole(_result(folder, number), data)


def results(folder, num_workers):
    """What the function returned, by worker; `None` if some did not.

    Args:
        folder: `pathlib.Path` of the call's folder.
        num_workers: Integer.
    """
    paths = [_result(folder, number) for number in range(num_workers)]
    if not all(path.exists() for path in paths):
        return None
    return [pickle.loads(path.read_bytes()) for path in paths]


def failure(folder, number):
    """The traceback of a worker's error as a string; `None` without one.

    Args:
        folder: `pathlib.Path` of the call's folder.
        number: Integer, the worker's, or `None`.
    """
    path = _failure(folder, number)
    return path.read_text("utf-8") if path.exists() else None


def _result(folder, number):
    return folder / f"result-{number}"


def _failure(folder, number):
    return folder / f"failure-{number}"


def _sources_without_files():
    """The entries of `linecache` for code that is in no file: cells."""
    return {
        name: entry
        for name, entry in linecache.cache.items()
        # (size, time of change, lines, name); a time is a file's.
        if len(entry) == 4 and entry[1] is None and not os.path.exists(name)
    }


def _report(path, kind, error, trace):
    """Stands for `sys.excepthook`."""
    # Not how the function came to be called.
    while trace.tb_next and trace.tb_frame.f_code.co_filename in _OUR_FRAMES:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(kind, error, trace))
    _write_whole(path, text.encode("utf-8", "backslashreplace"))
    print(f"{kind.__name__}: {_one_line(error)}", file=sys.stderr)


def _write_whole(path, data):
    with complete(path) as temporary:
        temporary.write_bytes(data)


def _one_line(error):
    return " ".join(str(error).split())
