"""Distances between variables of two runs, and what rounding makes of them.

The distance of a variable is

    W = largest difference between the runs / largest update since the start

of the variables of its kind, with one unit in the last place per step, the
rounding of stored values, subtracted from differences. Sums in another order can
differ by more, and training magnifies that: then a run whose weights are nudged
by a few units in the last place tells how much. Plain NumPy.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

FLOATS = ("bfloat16", "float16", "float32", "float64")
"""Float types, from the least precise to the most precise one."""

TOLERANCES = {
    "float64": 1e-12,
    "float32": 1e-5,
    "tensorfloat32": 2e-2,  # Products of GPUs round to the mantissa of float16.
    "float16": 2e-2,
    "bfloat16": 1.6e-1,  # Eight times the rounding of float16.
}
"""Default tolerance of W, by the float type that the model computes in."""

LOG_TOLERANCE = 1e-5
"""Least relative tolerance for losses, metrics and predictions."""

EXACT_LOG_TOLERANCE = 1e-9
"""The same in float64."""

NUDGES = 3
"""Most nudges that are tried: which of two equal numbers an accuracy takes for the
larger one depends on luck."""

UNITS = {
    "bfloat16": 2.0**-7,
    "tensorfloat32": 2.0**-10,
    **{name: float(np.finfo(name).eps) for name in ("float16", "float32")},
    "float64": float(np.finfo("float64").eps),
}
"""Distance from 1 to the next number, by float type."""

_BLOCK = 1 << 16
"""Elements that are compared at a time."""

_SUMMED_IN_FLOAT32 = ("bfloat16", "float16", "tensorfloat32")
"""Float types of which kernels sum in float32, and round the sum once."""


def dtype_of(model: Any) -> str:
    """Returns the least precise float type that a layer of a model computes in."""
    layers = getattr(model, "layers", [model])  # A trainer may be a layer.
    used = {layer.compute_dtype for layer in layers}
    return next((name for name in FLOATS if name in used), "float32")


def log_tolerance(tolerance: float) -> float:
    """Returns the tolerance of logs that goes with one of W."""
    is_exact = tolerance <= TOLERANCES["float64"]
    return max(tolerance, EXACT_LOG_TOLERANCE if is_exact else LOG_TOLERANCE)


def nudge_units(dtype: str) -> int:
    """Returns how many units in the last place a nudge has."""
    return 1 if dtype in _SUMMED_IN_FLOAT32 else 8


def nudge(dtype: str) -> float:
    """Returns the relative size of a nudge in a float type."""
    return nudge_units(dtype) * UNITS[dtype]


def nudged(
    array: np.ndarray, size: float, random: np.random.Generator
) -> np.ndarray:
    """Returns an array with each element moved up or down by `size`, relatively."""
    signs = random.choice([-1.0, 1.0], size=array.shape)
    return (array * (1 + signs * size)).astype(array.dtype)


def _margin(dtype: str) -> float:
    """How much larger than after a nudge a difference may be that is rounding.

    Sums of 40,000 values in another order, as in the gradient of a convolution's
    kernel, were some 500 units apart; in 16 bits the sum is rounded once.
    """
    return 8.0 if dtype in _SUMMED_IN_FLOAT32 else 100.0


def is_within(
    distance: float, after_nudges: Iterable[float], tolerance: float, dtype: str
) -> bool:
    """Whether a distance is within its tolerance, or as after one of some nudges."""
    noise = max(after_nudges, default=0.0)
    return distance <= max(tolerance, _margin(dtype) * noise)


def weight_differences(
    start: list[np.ndarray],
    one: list[np.ndarray],
    many: list[np.ndarray],
    kinds: list[str],
    steps: int,
) -> list[float]:
    """Returns each variable's difference / the largest update of its kind.

    Args:
        start: List of arrays, the variables before the first step.
        one: List of arrays, the reference's variables after some steps.
        many: List of arrays, the other run's.
        kinds: List of strings, such as `"trainable"`, `"state"` or `"seed"`.
        steps: Integer, the number of those steps.

    Returns:
        List of floats; 0 for seeds, infinite if only one run's values are
        finite or the shapes differ.
    """
    excesses = [_excess(a, b, steps) for a, b in zip(one, many)]
    differing = {kind for kind, excess in zip(kinds, excesses) if excess}
    updates: dict[str, float] = dict.fromkeys(differing, 0.0)
    for before, after, kind in zip(start, one, kinds):
        if kind in differing:
            updates[kind] = max(updates[kind], _update(before, after))
    distances: list[float] = []
    for excess, kind in zip(excesses, kinds):
        if kind == "seed" or excess == 0:
            distances.append(0.0)
        else:
            update = updates[kind]
            distances.append(excess / update if update > 0 else float("inf"))
    return distances


def _update(before: np.ndarray, after: np.ndarray) -> float:
    """Returns the largest update of a variable."""
    return max(
        (
            float(np.abs(wide(b) - wide(a)).max())
            for a, b in _blocks(before, after)
        ),
        default=0.0,
    )


def _excess(a: np.ndarray, b: np.ndarray, steps: int) -> float:
    """Returns the largest difference beyond the rounding of stored values."""
    if a.shape != b.shape:
        return float("inf")
    unit = np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0.0
    excess = 0.0
    for one, other in _blocks(a, b):
        if np.array_equal(one, other):
            continue
        one, other = wide(one), wide(other)
        finite = np.isfinite(one)
        if not np.array_equal(finite, np.isfinite(other)):
            return float("inf")
        if not finite.all():
            one, other = one[finite], other[finite]
        allowed = steps * unit * np.maximum(np.abs(one), np.abs(other))
        beyond = np.abs(one - other) - allowed
        excess = max(excess, float(beyond.max(initial=0.0)))
    return excess


def _blocks(*arrays: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Yields blocks of arrays that stay in the cache while they are compared."""
    flat = [array.reshape(-1) for array in arrays]
    for first in range(0, len(flat[0]), _BLOCK):
        yield [array[first : first + _BLOCK] for array in flat]


def relative_difference(one: Any, many: Any) -> float:
    """Returns the largest difference / the largest absolute value of `one`.

    The divisor is at least 1e-3, so that zeros compare by absolute difference.
    Infinite if the shapes or the positions of non-finite values differ.
    """
    a, b = wide(one), wide(many)
    if a.shape != b.shape:
        return float("inf")
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = max(float(np.abs(a[finite]).max()), 1e-3)
    return float(np.abs(a[finite] - b[finite]).max()) / scale


def wide(array: Any) -> np.ndarray:
    """Returns an array's numbers as float64."""
    return np.asarray(array, "float64")
