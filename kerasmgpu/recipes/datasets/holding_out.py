"""A random split of a data set into training and held-out examples."""

import numpy as np

from kerasmgpu.errors import InputError


def chosen(
    num_examples: int, held_out: float, seed: int, what: str, source: str = ""
) -> np.ndarray:
    """Draws the held-out examples: a bool array, `[num_examples]`.

    `held_out` is a fraction above 0 and below 1; each side gets at least one
    example. Errors call the examples `what` (`"ratings"`) of `source`.
    """
    if num_examples < 2:
        raise InputError(
            f"Holding out takes at least two {what}. Received: "
            f"{source or num_examples}"
        )
    count = min(max(round(held_out * num_examples), 1), num_examples - 1)
    # In place, as int32: half the memory of a `permutation`.
    order = np.arange(num_examples, dtype=np.int32)
    np.random.default_rng(seed).shuffle(order)
    is_held_out = np.zeros(num_examples, bool)
    is_held_out[order[:count]] = True
    return is_held_out
