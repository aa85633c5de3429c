"""References `"module:function"`, by which child processes find functions."""

import importlib
import importlib.util
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

from kerasmgpu.errors import InputError


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
            f"'my_module:{name}'. Received: {name}={function!r}"
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
        return f"{path}:{function}"
    top = module.partition(".")[0]
    if not top.isidentifier() or importlib.util.find_spec(top) is None:
        raise InputError(
            f"no module named {top!r} (in {name}={text!r}); run the command "
            "in the module's folder, or give the path of its file"
        )
    return text


def load(text: str) -> tuple[types.ModuleType, str]:
    """Imports the module of a reference.

    Returns:
        The module, and the name of the function in it.
    """
    module, _, function = text.rpartition(":")
    if not module.endswith(".py"):
        try:
            return importlib.import_module(module), function
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise  # The user's module imports a missing module.
            raise InputError(f"no module named {error.name!r}") from None
    path = pathlib.Path(module)
    sys.path.insert(0, str(path.parent))  # As `python file.py` does.
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded, function


def function_of(module: types.ModuleType, name: str) -> Callable[..., Any]:
    """Returns a module's function by name.

    Raises:
        InputError: If there is none.
    """
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"{module.__name__} has no function {name!r}")
    return function
