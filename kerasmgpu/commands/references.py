"""References `"module:function"`, by which child processes find functions."""

import importlib.util
import os
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

from kerasmgpu.commands import search_path, user_source
from kerasmgpu.errors import (
    InputError,
    shown,
)

CHILD = "KERASMGPU_CHILD"
"""Environment variable that marks a process of `child_processes.run_job`."""


def job(
    build: Callable[[], Any] | str,
    data: Callable[[], Any] | str | None,
    caller: str,
) -> dict[str, Any]:
    """Returns the entries of a child's job that name the user's functions.

    Args:
        caller: String, name of the function that needs the child.

    Raises:
        InputError: If a child couldn't import a function, or this process is
            one: importing the user's module would start more of them.
    """
    if CHILD in os.environ:
        raise InputError(
            f"kerasmgpu.{caller} was called while the module of `build` was "
            'imported; put the call under `if __name__ == "__main__":`'
        )
    return {
        "build": reference(build, "build"),
        "data": None if data is None else reference(data, "data"),
        "search_path": search_path.for_child(),
    }


def reference(function: Callable[..., Any] | str, name: str) -> str:
    """Returns the reference `"module:function"` of a function.

    For functions of the running program (`__main__`) it has the program's
    module or file.

    Args:
        function: Function at the top level of a module, or a reference.
        name: String, the argument's name in messages.

    Raises:
        InputError: If another process couldn't import it.
    """
    if isinstance(function, str):
        return _checked(function, name)
    module = getattr(function, "__module__", None)
    path = getattr(function, "__qualname__", "<locals>")
    if not callable(function) or module is None or not path.isidentifier():
        raise InputError(
            f"{name} must be a function at the top level of a module, because "
            "other processes import it, or its name such as "
            f"'my_module:{name}'. Received: {name}={shown(function)}"
        )
    if module == "__main__":
        module = _module_of_program(name)
    return f"{module}:{path}"


def _module_of_program(name: str) -> str:
    program = sys.modules["__main__"]
    spec = getattr(program, "__spec__", None)
    if spec is not None:
        return spec.name
    path = getattr(program, "__file__", None)
    if path is None:
        raise InputError(
            f"{name} is defined in an interactive session, where other "
            "processes can't find it; move it into a module and import it"
        )
    return str(pathlib.Path(path).resolve())


def _checked(text: str, name: str) -> str:
    """Returns a reference if its module or file exists; imports nothing."""
    module, _, function = text.rpartition(":")
    if not module or not function.isidentifier():
        raise InputError(
            f"{name} must be MODULE:FUNCTION or FILE.py:FUNCTION, such as "
            f"my_module:{name}. Received: {text!r}"
        )
    if module.endswith(".py"):
        path = pathlib.Path(module).resolve()
        if not path.is_file():
            raise InputError(f"no such file: {module} (in {name}={text!r})")
        user_source.check(path, function)
        return f"{path}:{function}"
    top = module.partition(".")[0]
    if not top.isidentifier() or search_path.find(top) is None:
        raise InputError(
            f"no module named {top!r} (in {name}={text!r}); run the command "
            "in the module's folder, or give the path of its file"
        )
    source = user_source.find(module)
    if source is not None:
        user_source.check(source, function)
    return text


def load(text: str) -> types.ModuleType:
    """Imports and returns the module of a reference.

    Raises:
        InputError: If there is none, or another one of its name is in use.
    """
    module = text.rpartition(":")[0]
    if module.endswith(".py"):
        return _load_file(pathlib.Path(module))
    top = module.partition(".")[0]
    _require_free(top, search_path.place(search_path.find(top)))
    try:
        return search_path.load(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # The user's module imports a missing module.
        raise InputError(f"no module named {error.name!r}") from None


def _load_file(path: pathlib.Path) -> types.ModuleType:
    _require_free(path.stem, str(path))
    search_path.put_first(str(path.parent))  # As `python file.py` does.
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def _require_free(name: str, path: str | None) -> None:
    """Refuses a module whose name another one has in `sys.modules`."""
    other = sys.modules.get(name)
    place = search_path.place(other)
    if other is None or path is None or place == path:
        return
    if place is None or os.path.realpath(place) != os.path.realpath(path):
        raise InputError(
            f"{path} has the name of a module that is in use already "
            f"({place or name}); rename the file"
        )


def function_of(module: types.ModuleType, text: str) -> Callable[..., Any]:
    """Returns the function of a reference in its module, imported.

    Raises:
        InputError: If there is none.
    """
    name = text.rpartition(":")[2]
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{module.__name__} has no function {name!r}")
    return function
