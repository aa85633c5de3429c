"""Axes of plots: limits and round ticks."""

import dataclasses
import math
from collections.abc import Iterable

_INSET = 0.02
"""Share of the frame beside the outermost values: room for their dots."""


@dataclasses.dataclass
class Axis:
    """One axis: from values to shares of its length, and its ticks.

    Attributes:
        low: Float, least value.
        high: Float, largest value.
        log: Whether it is logarithmic.
        ticks: List of values with a label.
    """

    low: float
    high: float
    log: bool
    ticks: list[float]

    def share(self, value: float) -> float:
        """The position of a value, 0 to 1; the limits lie within the frame."""
        if self.log:
            value, low, high = map(math.log, (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return _INSET + (1 - 2 * _INSET) * (value - low) / (high - low)


def axis(
    values: Iterable[float],
    log: bool = False,
    from_zero: bool = False,
    integers: bool = False,
    padded: bool = True,
    is_share: bool = False,
) -> Axis:
    """Chooses the limits and ticks of an axis.

    Args:
        values: What it must show: finite numbers.
        log: Whether it is logarithmic; needs positive values.
        from_zero: Whether it begins at 0.
        integers: Whether ticks are at integers only.
        padded: Whether the limits are ticks; else the values' own.
        is_share: Whether values are shares, which it ends at 1 for.
    """
    found = [*values, 0.0] if from_zero else list(values)
    low, high = min(found), max(found)
    if log:
        if high / low < 1.5:
            low, high = low / 1.3, high * 1.3
        return Axis(low, high, True, _log_ticks(low, high))
    if low == high:
        margin = 1.0 if integers else abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    step = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(step))
    step = power * next(m for m in (1, 2, 2.5, 5, 10) if m * power >= step)
    step = math.ceil(step) if integers else step
    if padded:
        low = math.floor(low / step + 1e-9) * step
        end = math.ceil(high / step - 1e-9) * step
        high = max(min(end, 1.0), high) if is_share else end
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [number * step for number in range(first, last + 1)]
    return Axis(low, high, False, ticks)


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks: list[float] = []
    for factors in ((1,), (1, 3), (1, 2, 5), range(1, 10)):
        ticks = [
            factor * 10.0**power
            for power in range(first, last + 1)
            for factor in factors
            if low <= factor * 10.0**power <= high
        ]
        if len(ticks) >= 3:
            break
    return ticks[:: math.ceil(len(ticks) / 7) or 1]
