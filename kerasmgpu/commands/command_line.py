"""Starts a command: parses flags, runs `main`, reports errors in one line."""

import signal
import sys
import time

from absl import app, flags, logging

from kerasmgpu.commands import disk_full, flag_parsing, quiet
from kerasmgpu.errors import InputError, printable


def start(main, define_flags, ends_children=False):
    """Defines and parses the flags, calls `main(argv)` and ends the process.

    Errors that a user can fix (`InputError`, flags that don't parse, or an
    `OSError` such as a full disk) become one line on standard error and exit
    status 1. Other exceptions are defects and keep their traceback.

    Args:
        main: Function of the list of arguments left after flag parsing.
        define_flags: Function of the `absl.flags.FlagValues` to define them in.
        ends_children: Boolean, whether SIGTERM ends the command like Ctrl-C,
            together with its child processes, with exit status 143. Defaults
            to `False`.
    """
    began = time.time()
    sys.argv[0] = _program()  # abseil's heading of the flags in --help.
    define_flags(flags.FLAGS)
    if ends_children:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    def run(argv):
        # TensorFlow's log, and kerasmgpu's, would hide the command's own lines.
        # --verbosity shows them.
        if not flags.FLAGS["verbosity"].present:
            quiet.start_unless_asked()
            logging.set_verbosity(logging.WARNING)
        try:
            main(argv)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)
        except Exception as error:
            _end_with_one_line(error, began)
            raise

    app.run(run, flags_parser=_parse)


def _program():
    """Returns the command that starts this program, `"python -m module"`."""
    spec = sys.modules["__main__"].__spec__
    if spec is None:  # A script.
        return sys.argv[0]
    return f"python -m {spec.name.removesuffix('.__main__')}"


def _parse(argv):
    try:
        return flag_parsing.parse(argv)
    except InputError as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(1)
    except SystemExit:  # --help was shown; abseil calls that status 1.
        sys.exit(0)


def _end_with_one_line(error, began):
    """Ends the process with one line if a user can fix the error."""
    folder = None
    if "output_dir" in flags.FLAGS:
        folder = flags.FLAGS["output_dir"].value
    message = disk_full.message(error, folder)
    if message is not None:
        message = printable(message)
        if folder:
            disk_full.remove_temporary(folder, began)
    elif isinstance(error, (InputError, OSError)):
        message = _one_line(error)
    else:
        return
    print(f"error: {message}", file=sys.stderr)
    _leave_job(message)
    sys.exit(1)


def show_help_of(module):
    """Makes `--help` show a module's docstring and flags.

    Args:
        module: The module that defined the flags.
    """
    sys.modules["__main__"].__doc__ = module.__doc__
    for flag in flags.FLAGS.get_flags_for_module(module.__name__):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _one_line(error):
    filename = getattr(error, "filename", None)
    if isinstance(error, FileExistsError) and filename is not None:
        return printable(
            f"can't use {filename}: a file is there, a folder was expected"
        )
    if filename is not None and error.strerror:
        return printable(f"can't use {filename}: {error.strerror}")
    return printable(" ".join(str(error).split()))


def _leave_job(message):
    """Tells the other workers why this one ends, if it is part of a job."""
    membership = sys.modules.get("kerasmgpu.job.membership")
    if membership is not None:
        membership.leave(message)
