"""Tells rounding from faults.

Sums in another order round differently, and training can magnify that without
bounds: Adam divides a gradient of nearly 0 by its own size. Rounding shrinks
with the precision, a fault does not. So a program is compared in float64, too:
there by what one device makes of weights, and of what layers give, that are
nudged by a few units in the last place.
"""

from collections.abc import Sequence

from kerasmgpu.distances import UNITS, is_within
from kerasmgpu.verify.comparison import COPIES, WEIGHTS, Comparison

_FALL = 100.0
"""How much less than the precision a difference may fall that is rounding."""


def is_like_noise(
    comparison: Comparison, noises: Sequence[Comparison], dtype: str
) -> bool:
    """Whether differences are as those after any of some nudges.

    Each variable is compared by itself, after each step: what is rounding in a
    bias before batch normalisation is a fault in the kernel behind it.

    Args:
        comparison: `Comparison` of a run on replicas.
        noises: `Comparison`s of nudged runs on one device.
        dtype: The float type of all of them.
    """
    if any(comparison.spread.values()):
        return False
    pairs = [
        (value, max(noise.checks[name][0] for noise in noises), limit)
        for name, (value, limit) in comparison.checks.items()
        if name != COPIES
    ]
    asides = zip(*(noise.by_variable for noise in noises))
    for step, aside in zip(comparison.by_variable, asides):
        if any(len(step) != len(one) for one in aside):
            return False
        pairs += [
            (value, max(of_noise), comparison.tolerance)
            for value, *of_noise in zip(step, *aside)
        ]
    return all(
        is_within(value, [of_noise], limit, dtype)
        for value, of_noise, limit in pairs
    )


def falls(own: Comparison, exact: Comparison, dtype: str) -> bool:
    """Whether a difference of weights falls in float64 as rounding does.

    What logs and predictions differ by then follows from the weights.

    Args:
        own: `Comparison` in the program's precision, out of parity.
        exact: `Comparison` of the same replicas in float64, in parity.
        dtype: The program's float type.
    """
    if any(own.spread.values()):
        return False
    ratio = _FALL * UNITS[dtype] / UNITS["float64"]
    checks = own.checks
    if own.weights > own.tolerance:
        checks = {WEIGHTS: checks[WEIGHTS]}
    return all(
        value
        <= max(limit, ratio * max(exact.checks[name][0], UNITS["float64"]))
        for name, (value, limit) in checks.items()
        if name != COPIES
    )
