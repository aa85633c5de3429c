"""`InputError`, for errors that a user can fix, and checks of arguments."""

import difflib
import functools
import inspect
import math
import operator
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_LONGEST_VALUE = 200

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://(.*)", re.DOTALL)
URL_WITH_ONE_SLASH = re.compile(
    r"(s3a?|gc?s|az|abfss?|hdfs):/(?!/)(.*)", re.DOTALL
)
"""A URL of an object store, of which `pathlib.Path` has left one slash."""


class InputError(ValueError):
    """An error that the user can fix: an invalid argument, flag, file or setup.

    The message is one line: what arrived, what was expected and what to do.
    Commands print it without a traceback and exit with status 1; any other
    exception is a defect of kerasmgpu or of the user's code and keeps its
    traceback. It is a `ValueError`, so callers can catch it without importing
    it.

    Example:

    ```python
    raise InputError(
        "num_replicas must be at least 1. Received: num_replicas=0"
    )
    ```
    """


class ArgumentError(InputError, TypeError):
    """A call with an unknown argument, or without one that is needed.

    Python's own error for it is a `TypeError`, and so is this one.
    """


def checked_arguments(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Makes a function raise `ArgumentError` if its arguments don't fit it.

    A decorator of public functions and constructors.
    """
    signature = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(
                _of_call(name, list(signature.parameters), kwargs, str(error))
            ) from None
        return function(*args, **kwargs)

    return call


def _of_call(
    name: str, known: list[str], given: Iterable[str], problem: str
) -> str:
    known = [one for one in known if one != "self"]
    unknown = [one for one in given if one not in known]
    text = f"{name} takes {', '.join(known) or 'no arguments'}. Received: "
    if not unknown:
        return f"{text}a call with {problem}"
    near = difflib.get_close_matches(unknown[0], known, n=1)
    return f"{text}{unknown[0]}=…" + (f"; is {near[0]} meant?" if near else "")


def shown(value: Any) -> str:
    """Returns a value for a message, in one short line.

    Example:

    >>> shown([1, 2])
    '[1, 2]'
    """
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {tuple(shape)}"
    if isinstance(value, (tuple, list)) and any(
        hasattr(each, "shape") for each in value
    ):
        return f"({', '.join(map(shown, value))})"
    text = one_line(repr(value))
    if len(text) <= _LONGEST_VALUE:
        return text
    return f"{text[:_LONGEST_VALUE]}…"


def one_line(error: object, most: int | None = None) -> str:
    """Returns an error's message, or another text, in one line.

    Args:
        error: Exception, or any object with a text.
        most: Integer, its longest length. Defaults to `None`: no limit.
    """
    return " ".join(str(error).split())[:most]


def listed(values: Iterable[Any], most: int) -> str:
    """Joins the first values, with the number of the others.

    Example:

    >>> listed("abcde", 3)
    'a, b, c and 2 more'
    """
    texts = [str(value) for value in values]
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")


def checked_path(value: Any, name: str, of_tensorflow: bool = False) -> str:
    """Returns a path as a string.

    Args:
        of_tensorflow: Boolean, whether TensorFlow opens it, which knows some
            URLs, too. Defaults to `False`.

    Raises:
        InputError: If it is neither a string nor path-like, is empty, or is a
            URL. `stores.places.checked_place` takes URLs.
    """
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        is_url = isinstance(path, str) and (
            URL.match(path) or URL_WITH_ONE_SLASH.match(path)
        )
        if is_url and not of_tensorflow:
            raise InputError(
                f"{name} takes a local path only. Received: {name}="
                f"{shown(path)}; choose a local one, and copy from or to the "
                "store"
            )
        if isinstance(path, str) and path:
            return path
    raise InputError(
        f"{name} must be a path, such as 'runs/1'. Received: "
        f"{name}={shown(value)}"
    )


def printable(text: str) -> str:
    r"""Returns text with tabs and control characters escaped.

    Text from a file or a file name may otherwise move a terminal's cursor, or
    be invisible.

    Args:
        text: String; bytes that are not text (`surrogateescape`) are escaped.

    Example:

    >>> print(printable("one\ttwo"))
    one\ttwo
    """
    return "".join(
        letter
        if letter.isprintable()
        else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


def checked_integer(
    value: Any, name: str, minimum: int, maximum: int | None = None
) -> int:
    """Returns `value` as an `int`.

    Args:
        value: The argument. NumPy's integers count as integers; `True` and
            `2.0` don't.
        name: String, the argument's name in the message.
        minimum: Integer, the least value allowed.
        maximum: Integer, the largest. Defaults to `None`: there is none.

    Raises:
        InputError: If it is not an integer, or out of this range.
    """
    # True is an integer in Python, but here it is a mistake.
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:
            pass  # Raised below, with the argument's name.
        else:
            if minimum <= number and (maximum is None or number <= maximum):
                return number
    span = f"of at least {minimum}"
    if maximum is not None:
        span = f"from {minimum} to {maximum}"
    raise InputError(
        f"{name} must be an integer {span}. Received: {name}={value!r}"
    )


def checked_counts(
    counts: Iterable[Any] | int | str,
    minimum: int = 1,
    name: str = "replica_counts",
) -> list[int]:
    """Returns counts as sorted integers without duplicates.

    Args:
        counts: Integer, or iterable of integers.
        minimum: Integer, the least count allowed. Defaults to 1.
        name: String, the argument's name for the error.

    Raises:
        InputError: If it is empty, or a count is not an integer of at least
            `minimum`.

    Example:

    >>> checked_counts([4, 1, 4])
    [1, 4]
    """
    if isinstance(counts, str) or not isinstance(counts, Iterable):
        counts = [counts]
    found = {checked_integer(count, name, minimum) for count in counts}
    if not found:
        raise InputError(
            f"{name} must have at least one number. Received: none"
        )
    return sorted(found)


def checked_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Returns `value` if it is one of the choices.

    Args:
        value: The argument.
        name: String, the argument's name in the message.
        choices: Sequence of strings.

    Raises:
        InputError: If it is not one of them.
    """
    if isinstance(value, str) and value in choices:
        return value
    raise InputError(
        f"{name} must be one of {', '.join(choices)}. "
        f"Received: {name}={value!r}"
    )


def checked_boolean(value: Any, name: str) -> bool:
    """Returns `value`; raises `InputError` if it is neither true nor false."""
    if isinstance(value, bool):
        return value
    raise InputError(
        f"{name} must be True or False. Received: {name}={shown(value)}"
    )


def checked_number(value: Any, name: str, zero_allowed: bool = False) -> float:
    """Returns `value` as a `float`.

    Args:
        value: The argument; anything that converts to a float, except strings
            and booleans.
        name: String, the argument's name in the message.
        zero_allowed: Boolean. Defaults to `False`.

    Raises:
        InputError: If it is not a finite number above 0 (or 0, where allowed).
    """
    if not isinstance(value, (bool, str)):
        try:
            number = float(value)
        except (TypeError, ValueError):
            pass  # Raised below.
        else:
            if math.isfinite(number) and (
                number > 0 or (zero_allowed and number == 0)
            ):
                return number
    expected = "of at least 0" if zero_allowed else "above 0"
    raise InputError(
        f"{name} must be a finite number {expected}. Received: {name}={value!r}"
    )
