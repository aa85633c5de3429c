"""Suggests a learning rate from the losses of a range test. Pure functions."""

import math
from collections.abc import Sequence


def smooth(losses: Sequence[float], smoothing: float) -> list[float]:
    """Returns the exponential moving average of losses, bias-corrected.

    The correction is that of Adam (Kingma and Ba, arXiv:1412.6980, section 3):
    the average is divided by the sum of its weights.

    Args:
        smoothing: Float from 0 (unchanged), below 1: weight of the past.

    Example:

    >>> smooth([4.0, 1.0], 0.5)
    [4.0, 2.0]
    """
    smoothed, average = [], 0.0
    for count, loss in enumerate(losses, start=1):
        average = smoothing * average + (1 - smoothing) * loss
        smoothed.append(average / (1 - smoothing**count))
    return smoothed


def has_diverged(smoothed: Sequence[float], factor: float) -> bool:
    """Whether the last smoothed loss is `factor` times the least, or no number.

    Of negative losses, whether it is as far above the least.
    """
    last, best = smoothed[-1], min(smoothed)
    return not math.isfinite(last) or last > best + (factor - 1) * abs(best)


def longest_valley(smoothed: Sequence[float]) -> tuple[int, int]:
    """Returns the first and last index of the longest valley of a curve.

    That is the longest subsequence of strictly falling losses, taken to be
    contiguous up to its last one (fastai's default, `valley`).

    Args:
        smoothed: Sequence of smoothed losses, one at least.

    Example:

    >>> longest_valley([5.0, 6.0, 4.0, 3.0, 2.0, 7.0])
    (1, 4)
    """
    lengths: list[int] = []
    for loss in smoothed:
        before = [n for n, other in zip(lengths, smoothed) if other > loss]
        lengths.append(1 + max(before, default=0))
    last = lengths.index(max(lengths))
    return last - lengths[last] + 1, last


def steepest(
    rates: Sequence[float], smoothed: Sequence[float], first: int, last: int
) -> int:
    """Returns the index where the loss falls fastest, over log(rate).

    Sylvain Gugger, "How do you find a good learning rate", 2018; fastai's
    `steep`. Only a valley is searched, since single losses vary.

    Args:
        rates: Sequence of learning rates, growing.
        smoothed: Sequence of smoothed losses, as many.
        first: Integer, the first index to compare with the next.
        last: Integer above `first`, the last index.
    """

    def slope(index: int) -> float:
        fall = smoothed[index + 1] - smoothed[index]
        return fall / math.log(rates[index + 1] / rates[index])

    return min(range(first, last), key=slope)
