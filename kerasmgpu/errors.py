"""`InputError`, for errors that a user can fix, and checks of arguments."""

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any


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
