"""Definitions of flags whose bounds hold for keywords of `run` as well."""

import math
import os

from absl import flags

from kerasmgpu.errors import InputError

# The flags belong to the module that calls these functions.
flags.disclaim_key_flags()

_LARGEST = 10**9  # Larger counts of steps or rows are treated as typos.


class _FiniteParser(flags.FloatParser):
    """Refuses NaN and infinity, which are within any bounds of abseil's."""

    def __init__(self, least, most, excludes_bounds):
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

    def is_outside_bounds(self, value):
        on_bound = value in (self.lower_bound, self.upper_bound)
        return (
            not math.isfinite(value)
            or (self._excludes_bounds and on_bound)
            or super().is_outside_bounds(value)
        )


class Definitions:
    """Defines flags in `flag_values`, in fewer words than abseil's."""

    def __init__(self, flag_values):
        self._where = {"flag_values": flag_values}

    def integer(self, name, default, text, least=1, most=_LARGEST):
        """Defines an integer from `least` to `most`."""
        flags.DEFINE_integer(name, default, text, least, most, **self._where)

    def number(
        self, name, default, text, least=None, most=None, excludes_bounds=False
    ):
        """Defines a finite number within bounds."""
        parser = _FiniteParser(least, most, excludes_bounds)
        serializer = flags.ArgumentSerializer()
        flags.DEFINE(
            parser, name, default, text, serializer=serializer, **self._where
        )

    def choice(self, name, default, choices, text):
        """Defines a string that is one of `choices`."""
        flags.DEFINE_enum(name, default, choices, text, **self._where)

    def string(self, name, text, default=None):
        """Defines a string."""
        flags.DEFINE_string(name, default, text, **self._where)

    def switch(self, name, default, text):
        """Defines a Boolean."""
        flags.DEFINE_bool(name, default, text, **self._where)

    def strings(self, name, default, text):
        """Defines a list, separated by commas."""
        flags.DEFINE_list(name, default, text, **self._where)

    def repeated(self, name, text):
        """Defines a list, of which each flag given adds one."""
        flags.DEFINE_multi_string(name, [], text, **self._where)


def checked(flag, value):
    """Returns what a keyword of `run` stands for, checked as its flag is."""
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
