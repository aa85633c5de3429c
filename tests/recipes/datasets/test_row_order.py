"""The order of rows is a function of seed and pass."""

import numpy as np

from kerasmgpu.recipes.datasets import row_order


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
