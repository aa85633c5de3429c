"""Which examples of a data set are held out."""

import numpy as np

from kerasmgpu.errors import InputError


def chosen(num_examples, held_out, seed, what, source=None):
    """Draws which examples are held out, and which are trained on.

    Args:
        num_examples: Integer, examples in all.
        held_out: Fraction above 0 and below 1; each side gets one at least.
        seed: Integer from 0; the same seed draws the same.
        what: What the examples are, in the plural (`"ratings"`).
        source: One line that says where they are from, for the error that
            they are too few. Defaults to `None`.

    Returns:
        Bool array, `[num_examples]`, true for those that are held out.

    Raises:
        InputError: If the fraction or the seed is out of range, or there are
            fewer than two examples.

    Example:

    ```python
    is_held_out = holding_out.chosen(1000, 0.1, seed=0, what="ratings")
    is_held_out.sum()  # 100
    ```
    """
    require_fraction(held_out, what)
    if seed < 0:
        raise InputError(
            f"The seed of a split can't be negative. Received: seed={seed}"
        )
    if num_examples < 2:
        raise InputError(
            f"Holding out takes at least two {what}. Received: "
            f"{source or num_examples}"
        )
    count = min(max(round(held_out * num_examples), 1), num_examples - 1)
    # int32 positions shuffled in place: 100 MB for 25 M ratings, where a
    # `permutation` would take twice that.
    order = np.arange(num_examples, dtype=np.int32)
    np.random.default_rng(seed).shuffle(order)
    is_held_out = np.zeros(num_examples, bool)
    is_held_out[order[:count]] = True
    return is_held_out


def require_fraction(held_out, what):
    """Refuses what is no fraction of the examples."""
    if not 0 < held_out < 1:
        raise InputError(
            f"The fraction of {what} to hold out must be above 0 and below 1. "
            f"Received: held_out={held_out}"
        )
