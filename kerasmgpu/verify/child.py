"""One run, as the process `python -m kerasmgpu.verify.child FOLDER`.

`FOLDER/job.json` has the settings. An exception is written to
`FOLDER/failure.json`, from which the parent prints one line.
"""

import json
import os
import pathlib
import re
import sys
import sysconfig
import traceback

from kerasmgpu.commands import child_module
from kerasmgpu.errors import InputError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Terminal colour codes in Keras's messages."""


class Reporter:
    """Writes `failure.json` for an uncaught exception.

    Args:
        folder: `pathlib.Path` of the run.
    """

    def __init__(self, folder):
        self.folder = folder
        self.tell("starting")

    def tell(self, phase):
        """Records the current phase of the run, also in `phase.txt`."""
        self.phase = phase
        (self.folder / "phase.txt").write_text(phase, encoding="utf-8")

    def __call__(self, kind, error, trace):
        """A `sys.excepthook`."""
        failure = {
            "phase": self.phase,
            "is_input_error": issubclass(kind, InputError),
            "type": kind.__name__,
            "message": " ".join(_COLOURS.sub("", str(error)).split()),
            "place": users_place(trace),
        }
        text = json.dumps(failure)
        (self.folder / "failure.json").write_text(text, encoding="utf-8")
        sys.__excepthook__(kind, error, trace)


def users_place(trace):
    """Returns the last line of the user's code in a traceback, or `None`.

    That is code outside Python, the installed packages and kerasmgpu.
    """
    paths = sysconfig.get_paths()
    foreign = [
        os.path.realpath(paths[name])
        for name in ("stdlib", "purelib", "platlib")
    ]
    foreign.append(str(pathlib.Path(__file__).resolve().parents[1]))
    for frame in reversed(traceback.extract_tb(trace)):
        path = os.path.realpath(frame.filename)
        is_foreign = any(path.startswith(folder) for folder in foreign)
        if not is_foreign and os.path.exists(path):
            name = os.path.basename(path)
            return f"{name}, line {frame.lineno}: {frame.line}"
    return None


def main(folder):
    """Trains once with the settings in `folder`; writes the result there."""
    folder = pathlib.Path(folder)
    reporter = Reporter(folder)
    sys.excepthook = reporter
    child_module.end_with_parent()
    job = json.loads((folder / "job.json").read_text("utf-8"))
    sys.path[:] = job["sys_path"]

    reporter.tell("starting TensorFlow")
    from kerasmgpu.verify.training import train

    train(job, reporter.tell)


if __name__ == "__main__":
    main(sys.argv[1])
