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
_KINDS = {"int": "an integer", "float": "a number", "bool": "true or false"}
_CIRCULAR = re.compile(r".*circular flagfile dependency.*: (.*)")
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_KIND = re.compile(
    r"^(Integer|Float|Number|String|String or path-like|Boolean|"
    r"Sequence of integers), "
)
_LONGEST_VALUE = 80
_DATA = (
    "MODULE:FUNCTION or FILE.py:FUNCTION that returns arrays (x, y) or (x, y, "
    "sample_weight), or batches as tf.data.Dataset or PyDataset. Default: the "
    "data that build() returns, or the function data of its module."
)
_DEFINE: dict[Any, Callable[..., Any]] = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    int | None: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    float | None: flags.DEFINE_float,
}
"""Maps the annotation of an argument to what defines its flag."""

NO_FLAGS = frozenset(
    ("build", "command", "environ", "model", "recipe", "recipe_flags", "show")
)
"""Arguments that are no settings: the command line has them without a flag."""

# The flags belong to the command that defines them: `--help` lists them.
flags.disclaim_key_flags()


def parse(argv: list[str]) -> list[str]:
    """Parses flags into `flags.FLAGS`; returns the arguments that are none.

    Raises:
        InputError: If a flag or a flag file is invalid, or a flag is given
            twice. (abseil would show Python's error, would ignore a flag file
            that includes itself, and would take the last of two values.)
    """
    said = io.StringIO()
    before = _times_given()
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
    if not any(word.lstrip("-").startswith("flagfile") for word in argv[1:]):
        _require_once(argv, before)  # A file's flags may be given anew.
    return rest


def _times_given() -> dict[str, int]:
    """Returns how often flags were parsed, but those that make a list."""
    found = (flags.FLAGS[name] for name in flags.FLAGS)
    return {
        flag.name: flag.present
        for flag in found
        if not isinstance(flag, flags.MultiFlag)
    }


def _require_once(argv: list[str], before: dict[str, int]) -> None:
    for name, times in _times_given().items():
        if times - before.get(name, 0) > 1:
            words = (
                word
                for word in argv[1:]
                if word.lstrip("-").partition("=")[0] in (name, f"no{name}")
            )
            raise InputError(
                f"--{name} is given {times - before.get(name, 0)} times; give it "
                f"once. Received: {printable(' '.join(words))}"
            )


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
    """Returns the defaults of a function's arguments, for a command's flags."""
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


def require_flags_only(argv: list[str]) -> None:
    """Raises `InputError` if there are arguments that are no flags."""
    if len(argv) > 1:
        raise InputError(
            "only flags are expected (--name=value). Received: "
            f"{' '.join(argv[1:])}"
        )


def define_arguments(
    function: Callable[..., Any], flag_values: flags.FlagValues, **helps: str
) -> None:
    """Defines a flag for each argument of a function.

    Type and default are those in its signature, the help text is that in
    `helps`, or in the section `Args` of its docstring. Arguments that are no
    settings have no flag (`NO_FLAGS`). Flags may follow the name of a function
    or a recipe.
    """
    section = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]
    texts = {**dict(_ARGUMENT.findall(section)), "data": _DATA, **helps}
    for name, argument in _arguments(function).items():
        kind, default = argument.annotation, argument.default
        if default is argument.empty:
            default = None
        define = _DEFINE.get(kind, flags.DEFINE_string)
        if "Sequence[" in str(kind):
            define = flags.DEFINE_list
            default = default and [str(each) for each in default]
        text = " ".join(texts[name].replace("`", "").split())
        text = _KIND.sub("", text)  # abseil says it.
        text = text[0].upper() + text[1:]
        define(name, default, text, flag_values=flag_values)
    if {"build", "recipe"} & inspect.signature(function).parameters.keys():
        flag_values.set_gnu_getopt(True)


def define_json(flag_values: flags.FlagValues) -> None:
    """Defines `--json`."""
    flags.DEFINE_boolean(
        "json",
        False,
        "Prints the report as JSON instead of tables.",
        flag_values=flag_values,
    )


def define_output(
    flag_values: flags.FlagValues,
    text: str = "File to write the report to, as JSON.",
) -> None:
    """Defines `--output`."""
    flags.DEFINE_string("output", None, text, flag_values=flag_values)


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Returns the values of the flags that `define_arguments` has defined."""
    values = {name: flags.FLAGS[name].value for name in _arguments(function)}
    for name, argument in _arguments(function).items():
        if "Sequence[int]" in str(argument.annotation) and values[name]:
            values[name] = counts_of_flag(values[name])
    return values


def _arguments(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {
        name: argument
        for name, argument in inspect.signature(function).parameters.items()
        if name not in NO_FLAGS
    }


def counts_of_flag(texts: Iterable[str]) -> list[int | str]:
    """Returns the integers of a flag such as `--replica_counts=1,2,4`.

    Args:
        texts: Iterable of strings. One that is not an integer is returned as
            it is, so that `errors.checked_counts` can name it.
    """
    return [int(text) if text.strip().isdecimal() else text for text in texts]


def require_package(module: str, package: str, needed_by: str) -> None:
    """Raises if an optional package is not installed; doesn't import it.

    Args:
        module: String, the package's top-level module, `"sklearn"`.
        package: String, its name on PyPI, `"scikit-learn"`.
        needed_by: String, such as the flag that needs it, `"--dataset=digits"`.

    Raises:
        InputError: If the module isn't installed.
    """
    if importlib.util.find_spec(module) is None:
        raise InputError(
            f"{needed_by} needs {package}, which is not installed: "
            f"pip install {package}"
        )
