"""Finds the user's modules in the working directory, and ours elsewhere.

`python -m` puts the working directory first in `sys.path`, and a console script
its own folder. A command needs the former for the user's modules only: a file
`random.py` there must not replace Python's in what kerasmgpu and TensorFlow
import. So `leave_to_the_user` takes it out, and `load` puts it first once a
module of the user's is imported, after ours.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
from typing import Any

_folders: list[str] = []  # Of the user's modules, before those of `sys.path`.

WITHOUT_WORKING_DIRECTORY = "import sys; sys.path[:] = filter(None, sys.path)"
"""Begin of a program of `python -c`."""

_PROGRAM = f"""{WITHOUT_WORKING_DIRECTORY}
import runpy
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def leave_to_the_user() -> None:
    """Takes the working directory, or the script's, from `sys.path`.

    Call it first in a command.
    """
    folder = os.getcwd()
    script = os.path.dirname(os.path.realpath(sys.argv[0]))
    if sys.path[0] in ("", folder, script):
        del sys.path[0]
    _folders[:] = [folder]


def for_child() -> dict[str, list[str]]:
    """Returns what `enter` needs in a child process, JSON-serialisable."""
    # Absolute, since '' is this process's working directory.
    paths = [os.path.abspath(path) for path in sys.path]
    return {"paths": paths, "folders": list(_folders)}


def enter(state: dict[str, list[str]]) -> None:
    """Makes this process find modules as its parent does."""
    sys.path[:], _folders[:] = state["paths"], state["folders"]


def python(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module of ours.

    It is `python -m module`, without the working directory in `sys.path`.
    """
    # `python -P -m` needs Python 3.11.
    return [sys.executable, "-c", _PROGRAM, module, *arguments]


def find(name: str) -> importlib.machinery.ModuleSpec | None:
    """Returns the specification of a module, or `None`.

    The user's is found first, even if another of its name is imported.

    Raises:
        ModuleNotFoundError: If a package that `name` names doesn't exist.
    """
    top, *rest = name.split(".")
    found = _in_folders_and_paths(top)
    if rest or found is None:  # Other finders than that of paths.
        _put_first_if_there(top)
        return importlib.util.find_spec(name)
    return found


def load(name: str) -> types.ModuleType:
    """Imports a module of the user's, or any other, by its dotted name."""
    _put_first_if_there(name.partition(".")[0])
    return importlib.import_module(name)


def put_first(*folders: str) -> None:
    """Puts folders first in `sys.path`, as Python does a program's."""
    sys.path[:] = [*folders, *(p for p in sys.path if p not in folders)]


def place(module: Any) -> str | None:
    """Returns the file of a module or specification; `None` for a namespace."""
    specification = getattr(module, "__spec__", module)
    return getattr(module, "__file__", None) or getattr(
        specification, "origin", None
    )


def _put_first_if_there(top: str) -> None:
    """Puts the folders first if they have a module that is not imported yet."""
    found = None if top in sys.modules else _in_folders_and_paths(top)
    if found is not None:
        files = [*(found.submodule_search_locations or ()), found.origin or ""]
        if os.path.dirname(files[0]) in _folders:
            put_first(*_folders)


def _in_folders_and_paths(top: str) -> importlib.machinery.ModuleSpec | None:
    paths = [*_folders, *sys.path]
    return importlib.machinery.PathFinder.find_spec(top, paths)
