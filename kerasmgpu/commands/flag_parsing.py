"""Parses flags and checks what they ask for, with one-line errors."""

import contextlib
import importlib.util
import inspect
import io
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from absl import flags

from kerasmgpu.errors import InputError, printable

_ILLEGAL = re.compile(r"flag --([^=\s]+)=(.*?): (.*)", re.DOTALL)
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
}
_CIRCULAR = re.compile(r".*circular flagfile dependency.*: (.*)")
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_LONGEST_VALUE = 80


def parse(argv: list[str]) -> list[str]:
    """Parses the arguments of a command into `flags.FLAGS`.

    Args:
        argv: List of strings, the command and its arguments.

    Returns:
        List of strings, the command and its arguments that are not flags.

    Raises:
        InputError: If a flag or a flag file is invalid. (abseil would show
            Python's error, and would ignore a flag file that includes itself.)
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            rest = flags.FLAGS(argv)
    except flags.Error as error:
        raise InputError(_one_line(str(error))) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"--flagfile: a file of flags must be text, one --name=value a "
            f"line ({error})"
        ) from error
    circular = _CIRCULAR.match(said.getvalue())
    if circular:
        raise InputError(
            "--flagfile: a file of flags can't include itself. Received: "
            f"{circular[1]}"
        )
    sys.stderr.write(said.getvalue())
    return rest


def _one_line(message: str) -> str:
    illegal = _ILLEGAL.fullmatch(message)
    if illegal is None:
        message = message.removeprefix("ERROR:: ")
        return f"{message.strip()}; --help shows the flags"
    name, value, reason = illegal.groups()
    kind = None
    if name in flags.FLAGS:
        kind = _KINDS.get(flags.FLAGS[name].flag_type())
    # abseil's text about bounds is clear, and stays.
    if kind and not re.match(r"(-?\d.*|-?inf|nan) is not ", reason):
        reason = f"must be {kind}"
    if len(value) > _LONGEST_VALUE:
        value = value[:_LONGEST_VALUE] + "…"
    reason = reason.rstrip(".")
    return f"--{name}: {reason}. Received: {printable(value) or 'nothing'}"


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the defaults of a function's arguments, for a command's flags.

    Args:
        function: Function that a command calls with its flags as keywords.

    Returns:
        Dictionary from names to defaults, for arguments that have one.
    """
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }


def only_function(argv: list[str]) -> str:
    """Returns the reference of the user's function, the only argument.

    Raises:
        InputError: If there is none, or more.
    """
    if len(argv) != 2:
        raise InputError(
            "give one function that returns your compiled model, such as "
            f"my_module:build. Received: {' '.join(argv[1:]) or 'none'}"
        )
    return argv[1]


def define_arguments(
    function: Callable[..., Any], flag_values: flags.FlagValues
) -> None:
    """Defines a flag for each keyword-only argument of a function but `show`.

    Type and default are those in its signature, the help text is that in the
    section `Args` of its docstring. For `--help` to list them, the command
    calls `flags.adopt_module_key_flags(flag_parsing, flag_values)`.
    """
    section = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]
    texts = dict(_ARGUMENT.findall(section))
    for name, argument in _keyword_arguments(function).items():
        kind = argument.annotation
        define: Callable[..., Any] = flags.DEFINE_string
        if kind is bool:
            define = flags.DEFINE_boolean
        elif kind in (int, int | None):
            define = flags.DEFINE_integer
        elif kind is float:
            define = flags.DEFINE_float
        text = " ".join(texts[name].replace("`", "").split())
        define(name, argument.default, text, flag_values=flag_values)


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the values of the flags that `define_arguments` has defined."""
    names = _keyword_arguments(function)
    return {name: flags.FLAGS[name].value for name in names}


def _keyword_arguments(
    function: Callable[..., Any],
) -> dict[str, inspect.Parameter]:
    return {
        name: argument
        for name, argument in inspect.signature(function).parameters.items()
        if argument.kind is argument.KEYWORD_ONLY and name != "show"
    }


def counts_of_flag(texts: Iterable[str]) -> list[int | str]:
    """Returns the integers of a flag such as `--replica_counts=1,2,4`.

    Args:
        texts: Iterable of strings. One that is not an integer is returned as
            it is, so that `errors.checked_counts` can name it.
    """
    return [int(text) if text.strip().isdecimal() else text for text in texts]


def require_package(module: str, package: str, extra: str, flag: str) -> None:
    """Raises if an optional package is not installed; doesn't import it.

    Args:
        module: String, the package's top-level module, `"sklearn"`.
        package: String, its name on PyPI, `"scikit-learn"`.
        extra: String, the extra of kerasmgpu that includes it, `"digits"`.
        flag: String, the flag that needs it, `"--dataset=digits"`.

    Raises:
        InputError: If the module isn't installed.
    """
    if importlib.util.find_spec(module) is None:
        raise InputError(
            f"{flag} needs {package}, which is not installed: "
            f"pip install {package}, or kerasmgpu[{extra}]"
        )
