"""How every command of the library starts, and how it fails."""

import sys

from absl import app, flags

from kerasmgpu.commands import quiet
from kerasmgpu.errors import InputError


def start(main):
    """Parses the flags, calls `main(argv)` and ends the process.

    What a user can mend (`InputError`, or an `OSError` such as a full disk)
    becomes one line on standard error and exit status 1; abseil does the same
    for flags that don't parse. A defect keeps its traceback.

    Args:
        main: Function of the list of arguments left after flag parsing.
    """

    def run(argv):
        # TensorFlow's chatter would bury our own lines. Whoever wants it gives
        # --verbosity, or sets the variable.
        if not flags.FLAGS["verbosity"].present:
            quiet.start_unless_asked()
        try:
            main(argv)
        except (InputError, OSError) as error:
            message = _one_line(error)
            print(f"error: {message}", file=sys.stderr)
            _leave_job(message)
            sys.exit(1)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)

    app.run(run)


def show_help_of(module):
    """Lets `--help` show a module's docstring and flags as the command's own.

    Args:
        module: The module that defined the flags.
    """
    sys.modules["__main__"].__doc__ = module.__doc__
    for flag in flags.FLAGS.get_flags_for_module(module.__name__):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)


def _one_line(error):
    filename = getattr(error, "filename", None)
    if filename is not None and error.strerror:
        return f"can't use {filename}: {error.strerror}"
    return " ".join(str(error).split())


def _leave_job(message):
    """Tells the other workers, where this process is one of a job."""
    membership = sys.modules.get("kerasmgpu.job.membership")
    if membership is not None:
        membership.leave(message)
