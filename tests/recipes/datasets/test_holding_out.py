"""What is held out is a fraction of the examples, the same for one seed."""

import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import holding_out


def test_a_fraction_is_held_out_and_a_seed_repeats_it():
    first, again, other = (
        holding_out.chosen(1000, 0.1, seed, "rows") for seed in (0, 0, 1)
    )
    assert first.sum() == 100
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("held_out", [1e-9, 1 - 1e-9])
def test_each_side_gets_one(held_out):
    assert 0 < holding_out.chosen(5, held_out, 0, "rows").sum() < 5


def test_one_example_can_not_be_split():
    with pytest.raises(InputError, match="at least two rows. Received: 1"):
        holding_out.chosen(1, 0.5, 0, "rows")
