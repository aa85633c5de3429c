"""Which examples of a data set are held out."""

import numpy as np

from kerasmgpu.errors import InputError


def chosen(num_examples, held_out, seed, what, source=None):
    """Draws which examples are held out: a bool array, `[num_examples]`.

    Args:
        num_examples: Integer, examples in all.
        held_out: Fraction above 0 and below 1; each side gets one at least.
        seed: Integer from 0.
        what: What the examples are, in the plural (`"ratings"`).
        source: Where they are from, for the error that they are too few.
    """
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
