"""The search for a batch size: doubles it, then bisects. Pure functions.

A measurement is a dictionary of `"global_batch_size"`, `"examples_per_second"`
(`None` if the size failed) and `"error"` (`None` if it did not).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

_FLAT = 1.05
"""Two doublings must raise the speed by this factor, or the curve is flat."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """Where the search begins and ends.

    Attributes:
        low: Integer, the first size; larger sizes are its multiples.
        high: Integer or `None`, the largest size.
        precision: Float, how far the largest size may be below the smallest
            that fails, as a share of it.
        stop_when_flat: Boolean, whether doubling ends where it no longer helps.
    """

    low: int
    high: int | None = None
    precision: float = 0.05
    stop_when_flat: bool = True


def next_size(measured: Sequence[dict[str, Any]], limits: Limits) -> int | None:
    """Returns the global batch size to measure next; `None` ends the search."""
    if not measured:
        return limits.low
    speeds = _speeds(measured)
    failed = min(
        (m["global_batch_size"] for m in measured if m["error"] is not None),
        default=None,
    )
    if not speeds:  # Even `low` is too much.
        return None if failed is None else failed // 2 or None
    largest = max(speeds)
    if failed is None:
        double = min(2 * largest, limits.high or 2 * largest)
        is_flat = limits.stop_when_flat and _is_flat(list(speeds.values()))
        return None if is_flat or double <= largest else double
    unit = limits.low if largest >= limits.low else 1
    if failed - largest <= max(unit, limits.precision * largest):
        return None
    middle = (largest + failed) // 2
    return max(middle // unit * unit, largest + unit)


def knee(
    measured: Sequence[dict[str, Any]], target_efficiency: float = 0.9
) -> int:
    """Returns the smallest size with nearly the best speed.

    Args:
        measured: Sequence of measurements; one at least must not have failed.
        target_efficiency: Float, the share of the best examples per second
            that it must reach. Defaults to 0.9.

    Example:

    >>> speeds = {8: 100.0, 16: 190.0, 32: 290.0, 64: 300.0}
    >>> knee(
    ...     [
    ...         dict(global_batch_size=n, examples_per_second=s, error=None)
    ...         for n, s in speeds.items()
    ...     ]
    ... )
    32
    """
    speeds = _speeds(measured)
    least = target_efficiency * max(speeds.values())
    return min(size for size, speed in speeds.items() if speed >= least)


def _speeds(measured: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Maps each size that fits to its examples per second, smallest first."""
    return {
        m["global_batch_size"]: m["examples_per_second"]
        for m in sorted(measured, key=lambda m: m["global_batch_size"])
        if m["error"] is None
    }


def _is_flat(speeds: Sequence[float]) -> bool:
    return len(speeds) > 2 and max(speeds[-2:]) < _FLAT * max(speeds[:-2])
