"""The split and the order of rows are functions of the seed."""

import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import row_order


def test_a_fraction_is_held_out_and_a_seed_repeats_it():
    first, again, other = (
        row_order.held_out_rows(1000, 0.1, seed, "rows") for seed in (0, 0, 1)
    )
    assert first.sum() == 100
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize("held_out", [1e-9, 1 - 1e-9])
def test_each_side_gets_one(held_out):
    assert 0 < row_order.held_out_rows(5, held_out, 0, "rows").sum() < 5


def test_one_example_can_not_be_split():
    with pytest.raises(InputError, match="at least two rows. Received: 1"):
        row_order.held_out_rows(1, 0.5, 0, "rows")


def taken(count, **arguments):
    data = row_order.batches(10, 4, **arguments)
    return [rows.tolist() for rows in data.take(count).as_numpy_iterator()]


def test_every_pass_has_every_row_once_and_a_smaller_last_batch():
    batches = taken(6, seed=1)
    assert [len(rows) for rows in batches] == [4, 4, 2, 4, 4, 2]
    for one_pass in (batches[:3], batches[3:]):
        assert sorted(np.concatenate(one_pass)) == list(range(10))


def test_passes_and_seeds_have_their_own_orders():
    batches = taken(6, seed=1)
    assert batches[:3] != batches[3:]
    assert batches != taken(6, seed=2)
    assert batches == taken(6, seed=1)


def test_it_goes_on_at_any_step():
    batches = taken(9, seed=1)
    for first_step in (1, 3, 5):
        assert (
            taken(4, seed=1, first_step=first_step)
            == (batches[first_step : first_step + 4])
        )
