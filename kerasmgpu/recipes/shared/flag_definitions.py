"""Flags whose bounds also hold for keywords of `run`."""

import dataclasses
import functools
import math
import os
import typing
from collections.abc import Iterable
from typing import Any

from absl import flags

from kerasmgpu.errors import InputError
from kerasmgpu.strategy_settings import Settings

# The flags belong to the module that calls these functions.
flags.disclaim_key_flags()

_LARGEST = 10**9  # Larger counts of steps or rows are treated as typos.


class _FiniteParser(flags.FloatParser):
    """Refuses NaN and infinity, which abseil's bounds let through."""

    def __init__(
        self, least: float | None, most: float | None, excludes_bounds: bool
    ) -> None:
        super().__init__(least, most)
        self._excludes_bounds = excludes_bounds
        self.syntactic_help = "a finite number"
        if excludes_bounds:
            below = "" if most is None else f" and below {most:g}"
            self.syntactic_help += f" above {least:g}{below}"
        elif most is not None:
            self.syntactic_help += f" from {least:g} to {most:g}"
        elif least is not None:
            self.syntactic_help += f" of at least {least:g}"

    def is_outside_bounds(self, value: float) -> bool:
        on_bound = value in (self.lower_bound, self.upper_bound)
        return (
            not math.isfinite(value)
            or (self._excludes_bounds and on_bound)
            or super().is_outside_bounds(value)
        )


class _CountParser(flags.IntegerParser):
    """Parses an integer, or one word in its place."""

    def __init__(self, word: str, least: int) -> None:
        super().__init__(least, _LARGEST)
        self._word = word
        self.syntactic_help += f", or {word}"

    def parse(self, argument: int | str) -> int | str:
        if argument == self._word:
            return self._word
        number: int = super().parse(argument)
        return number


class Definitions:
    """abseil's `DEFINE_...` for one `FlagValues`: name, default and help.

    Integers have bounds by default; numbers are finite.
    """

    def __init__(self, flag_values: flags.FlagValues) -> None:
        self._where = {"flag_values": flag_values}
        self.choice = functools.partial(flags.DEFINE_enum, **self._where)
        self.string = functools.partial(flags.DEFINE_string, **self._where)
        self.switch = functools.partial(flags.DEFINE_bool, **self._where)
        self.strings = functools.partial(flags.DEFINE_list, **self._where)
        self.repeated = functools.partial(
            flags.DEFINE_multi_string, **self._where
        )

    def integer(
        self, *arguments: Any, least: int = 1, most: int = _LARGEST
    ) -> None:
        flags.DEFINE_integer(*arguments, least, most, **self._where)

    def integer_or(self, word: str, *arguments: Any, least: int = 1) -> None:
        """Defines an integer, or a word in its place."""
        parser = _CountParser(word, least)
        plain = flags.ArgumentSerializer()
        flags.DEFINE(parser, *arguments, serializer=plain, **self._where)

    def settings(self, **texts: str) -> None:
        """Defines the flags of a strategy's `Settings` that have a help text.

        With `texts`, names of settings to other help texts: those alone.
        """
        for one in dataclasses.fields(Settings):
            about, named = one.metadata, (one.name, one.default)
            text = texts.get(one.name) if texts else about["help"]
            if text is None:
                continue
            if "choices" in about:
                self.choice(*named, about["choices"], text)
            elif "word" in about:
                self.integer_or(about["word"], *named, text)
            elif int in (one.type, *typing.get_args(one.type)):
                self.integer(*named, text, most=about.get("most", _LARGEST))
            else:
                self.string(*named, text)

    def number(
        self,
        *arguments: Any,
        least: float | None = None,
        most: float | None = None,
        excludes_bounds: bool = False,
    ) -> None:
        parser = _FiniteParser(least, most, excludes_bounds)
        plain = flags.ArgumentSerializer()
        flags.DEFINE(parser, *arguments, serializer=plain, **self._where)


def integers(texts: Iterable[str]) -> list[int]:
    """Converts the texts of a list flag; returns none if one is no integer."""
    try:
        return [int(text) for text in texts]
    except (ValueError, TypeError):
        return []


def checked(flag: flags.Flag, value: Any) -> Any:
    """Parses and checks a keyword of `run` as its flag would be."""
    if value is None or isinstance(flag, flags.MultiFlag):
        return value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    elif isinstance(value, tuple):
        value = list(value)
    elif hasattr(value, "item"):  # NumPy's numbers.
        value = value.item()
    try:
        return flag.parser.parse(value)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"--{flag.name}: {str(error).rstrip('.')}. Received: {value}"
        ) from error
