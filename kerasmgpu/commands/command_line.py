"""Starts a command: parses flags, runs `main`, reports errors in one line."""

import errno
import os
import re
import sys
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

from absl import app, flags, logging

from kerasmgpu import atomic_files, signals, stderr_filter
from kerasmgpu.commands import endings, flag_parsing, search_path
from kerasmgpu.errors import InputError, one_line, printable

LOADING = "loading TensorFlow, which takes some seconds"

_SLOW = {"tensorflow", "keras"}  # Keras imports TensorFlow.

_DISK_FULL = {
    number: os.strerror(number)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
}
_FILE_IN_TEXT = re.compile(r"filename = '([^']*)'")

# Flags belong to the program that calls `start`: `--help` lists them.
flags.disclaim_key_flags()


def start(
    main: Callable[[list[str]], Any],
    define_flags: Callable[[flags.FlagValues], None],
    ends_children: bool = False,
    wrong_input_status: int = 1,
    parse: Callable[[list[str]], list[str]] = flag_parsing.parse,
) -> None:
    """Defines and parses the flags, calls `main(argv)` and ends the process.

    Errors that a user can fix (`InputError`, flags that don't parse, or an
    `OSError` such as a full disk) become one line on standard error and exit
    status 1. Other exceptions are defects and keep their traceback. Ctrl-C is
    the line "interrupted" and status 130; see `endings` for a closed pipe.

    Args:
        main: Function of the list of arguments left after flag parsing.
        ends_children: Boolean, whether SIGTERM ends the command like Ctrl-C,
            together with its child processes, with exit status 143. Defaults
            to `False`.
        wrong_input_status: Integer, the exit status for flags that don't parse
            and for an `InputError`. Defaults to 1.
        parse: Function that parses the arguments into `flags.FLAGS` and
            returns those that are no flags. Defaults to `flag_parsing.parse`.
    """
    began = time.time()
    search_path.leave_to_the_user()

    def run(argv: list[str]) -> None:
        # TensorFlow's log, and kerasmgpu's, would hide the command's own lines.
        # --verbosity shows them.
        if not flags.FLAGS["verbosity"].present:
            stderr_filter.start_unless_asked()
            logging.set_verbosity(logging.WARNING)
        try:
            main(argv)
        except Exception as error:
            if endings.is_reader_gone(error):
                raise
            message = _message(error, began)
            if message is None:
                raise
            is_input = isinstance(error, InputError)
            _end(message, wrong_input_status if is_input else 1)

    def parse_or_end(argv: list[str]) -> list[str]:
        return _parsed(argv, parse, wrong_input_status)

    with endings.without_traceback():
        sys.argv[0] = _program()  # abseil's heading of the flags in --help.
        define_flags(flags.FLAGS)
        if ends_children:
            signals.exit_on_sigterm()
        app.run(run, flags_parser=parse_or_end)


def _program() -> str:
    """Returns the command that starts this program, `"python -m module"`."""
    spec = sys.modules["__main__"].__spec__
    if spec is None:  # A script.
        return sys.argv[0]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def _parsed(
    argv: list[str],
    parse: Callable[[list[str]], list[str]],
    wrong_input_status: int,
) -> list[str]:
    try:
        return parse(argv)
    except InputError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(wrong_input_status)
    except SystemExit:  # --help was shown; abseil calls that status 1.
        sys.exit(0)


def show_help_of(module: types.ModuleType) -> None:
    """Makes `--help` show a module's docstring and flags."""
    sys.modules["__main__"].__doc__ = module.__doc__
    for flag in flags.FLAGS.get_flags_for_module(module.__name__):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def say_loading(work: str) -> None:
    """Prints what begins with `LOADING`, on standard error."""
    print(f"{work}: {LOADING}", file=sys.stderr, flush=True)


def announce_loading() -> None:
    """Prints `LOADING` when TensorFlow or Keras is first imported, if ever.

    An error before the import is then the command's only line.
    """
    if not _SLOW & sys.modules.keys():
        sys.meta_path.insert(0, _Announcement())


class _Announcement:
    """An import finder that finds no modules, but prints `LOADING`."""

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> None:
        if name in _SLOW:
            sys.meta_path.remove(self)
            print(LOADING, file=sys.stderr, flush=True)


def _message(error: Exception, began: float) -> str | None:
    """Returns one line if a user can fix the error; removes partial files."""
    folder = None
    if "output_dir" in flags.FLAGS:
        folder = flags.FLAGS["output_dir"].value
    message = disk_full_message(error, folder)
    if message is not None:
        if folder:
            atomic_files.discard_all(folder, began)
        return printable(message)
    if isinstance(error, (InputError, OSError)):
        return _one_line(error)
    return None


def _one_line(error: Exception) -> str:
    filename = getattr(error, "filename", None)
    if isinstance(error, FileExistsError) and filename is not None:
        return printable(
            f"can't use {filename}: a file is there, a folder was expected"
        )
    if isinstance(error, OSError) and filename is not None and error.strerror:
        return printable(f"can't use {filename}: {error.strerror}")
    return printable(one_line(error))


def disk_full_message(
    error: BaseException, folder: str | None = None
) -> str | None:
    """Returns a one-line message, or `None` if a full disk is not the reason.

    Libraries report a full disk in several ways: an `OSError` with its number,
    HDF5's text with memory addresses, an error on closing a file after one on
    writing it.

    Args:
        error: Exception; its causes are searched, too.
        folder: String, the command's output folder, named if the error names
            no file. Defaults to `None`.
    """
    reason = path = None
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause)
        reason = reason or _disk_full_reason(cause, text)
        named = _FILE_IN_TEXT.search(text)
        path = path or getattr(cause, "filename", None)
        path = path or (named and named[1])
        cause = cause.__cause__ or cause.__context__
    if reason is None:
        return None
    return (
        f"can't write {path or folder or 'a file'}: {reason}. Free some space, "
        "or choose another folder; files that were complete are still there"
    )


def _disk_full_reason(error: BaseException, text: str) -> str | None:
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return _DISK_FULL[error.errno]
    return next((r for r in _DISK_FULL.values() if r in text), None)


def _end(message: str, status: int) -> NoReturn:
    """Ends the process with one line on standard error; see `leave_job`."""
    print(f"error: {message}", file=sys.stderr)
    leave_job(message)
    sys.exit(status)


def leave_job(message: str) -> None:
    """Tells the other workers why this one ends, if it is one of a job."""
    membership = sys.modules.get("kerasmgpu.job.membership")
    if membership is not None:
        membership.leave(message)
