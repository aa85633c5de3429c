"""The one exception that means "the user can mend this", and checks."""

import math
import operator
from collections.abc import Sequence
from typing import Any


class InputError(ValueError):
    """Something the user gave can't be used as it is.

    The message is one line: what arrived, what was expected and how to go on.
    Commands print it without a traceback and exit with status 1; any other
    exception is a defect of ours (or of the user's own code) and keeps its
    traceback. It is a `ValueError`, so library callers need no import to
    catch it.

    Example:

    ```python
    raise InputError(
        "num_replicas must be at least 1. Received: num_replicas=0"
    )
    ```
    """


def printable(text: str) -> str:
    r"""A text for people, with tabs and control characters escaped.

    What a file or a name holds may move a terminal's cursor, or be invisible.

    Args:
        text: String; a part that is no text (`surrogateescape`) is escaped.

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


def checked_integer(value: Any, name: str, minimum: int) -> int:
    """Returns `value` as an `int`.

    Args:
        value: What arrived. NumPy's integers count as integers; `True` and
            `2.0` don't.
        name: String, the argument's name in the message.
        minimum: Integer, the least value allowed.

    Raises:
        InputError: If it is not an integer, or below `minimum`.
    """
    # True is an integer to Python, and never what was meant.
    if not isinstance(value, bool):
        try:
            number = operator.index(value)
        except TypeError:
            pass  # Told below, in the words of the one who called.
        else:
            if number >= minimum:
                return number
    raise InputError(
        f"{name} must be an integer of at least {minimum}. "
        f"Received: {name}={value!r}"
    )


def checked_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Returns `value`, one of the choices.

    Args:
        value: What arrived.
        name: String, the argument's name in the message.
        choices: Sequence of strings.

    Raises:
        InputError: If it is none of them.
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
        value: What arrived; anything that converts to a float but strings
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
            pass  # Told below.
        else:
            if math.isfinite(number) and (
                number > 0 or (zero_allowed and number == 0)
            ):
                return number
    expected = "of at least 0" if zero_allowed else "above 0"
    raise InputError(
        f"{name} must be a finite number {expected}. Received: {name}={value!r}"
    )
