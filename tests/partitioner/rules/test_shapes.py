"""Rules for operations that move, join or cut axes."""

import pytest
import tensorflow as tf

from kerasmgpu.partitioner.runtime.function import Partitioned
from tests.partitioner.rules.planned import (
    ROWS,
    Planned,
    kinds_of,
    replicas,
    same,
)


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0]])
def test_transposes_move_rows(order):
    kinds = kinds_of(lambda x: tf.transpose(x, order), [ROWS, 3, 4])
    assert kinds == [f"rows on {order.index(0)}"]


def test_a_reshape_merges_rows_with_what_follows():
    kinds = kinds_of(lambda x: tf.reshape(x, [-1, 4]), [ROWS, 3, 4])
    assert kinds == ["rows on 0, 1 * rows * 3"]


def test_a_reshape_merges_rows_with_what_is_in_front():
    def merge(x):
        return tf.reshape(tf.transpose(x, [1, 0, 2]), [-1, 4])

    assert kinds_of(merge, [ROWS, 3, 4]) == ["rows on 0, 3 * rows * 1"]


def test_a_reshape_splits_rows_from_what_follows():
    def there_and_back(x):
        flat = tf.reshape(x, [-1])
        return tf.reshape(flat, [tf.shape(x)[0], 3, 4])

    assert kinds_of(there_and_back, [ROWS, 3, 4]) == ["rows on 0"]


def test_a_reshape_that_mixes_rows_needs_all_rows():
    plan = Planned(lambda x: tf.reshape(x, [2, -1]), [ROWS, 3])
    assert plan.gathered == ["Reshape"]


def test_axes_of_one_element_come_and_go():
    def expand(x):
        return x[None], tf.squeeze(tf.expand_dims(x, 0), 0)

    assert kinds_of(expand, [ROWS, 4]) == ["rows on 1", "rows on 0"]


def test_squeezing_all_that_is_one_needs_all_rows():
    same(lambda x: (tf.squeeze(x),), [2, 1], num_replicas=2)


def test_rows_after_rows_are_blocks():
    def several_times(x):
        return tf.concat([x, x + 1, x], 0) * 2.0, tf.tile(x, [2, 1])

    assert kinds_of(several_times, [ROWS, 4]) == [
        "rows on 0, 3 * rows * 1",
        "rows on 0, 2 * rows * 1",
    ]


def test_rows_that_are_one_entry_repeated_are_made_by_each_replica():
    def centred(x):
        mean = tf.reduce_mean(x, 0, keepdims=True)
        return x * tf.tile(mean, [tf.shape(x)[0], 1])

    plan = Planned(centred, [ROWS, 4])
    assert plan.kinds == ["rows on 0"]
    assert plan.gathered == []
    for rows in (5, 1):
        same(centred, [rows, 4], num_replicas=3)


def test_of_one_row_nothing_is_shared_whose_size_comes_later():
    def step(x):
        kept = tf.boolean_mask(x, tf.range(tf.shape(x)[0]) < 1)
        return (tf.eye(tf.shape(tf.tanh(kept))[0]),)

    same(step, [1], num_replicas=2, static=True)


def test_blocks_are_cut_where_they_were_put_together():
    def there_and_back(x):
        return tf.split(tf.concat([x, x + 1], 0), 2)

    assert kinds_of(there_and_back, [ROWS, 4]) == ["rows on 0", "rows on 0"]


def test_parts_of_other_axes():
    plan = Planned(lambda x: x[:, 1:, ::2], [ROWS, 4, 4])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


def test_parts_of_rows_need_all_rows():
    assert Planned(lambda x: x[1:], [ROWS, 4]).gathered == ["StridedSlice"]


def test_padding_of_other_axes():
    plan = Planned(lambda x: tf.pad(x, [[0, 0], [1, 2]]), [ROWS, 4])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


def test_turned_around():
    def turn(axis):
        return lambda x: (tf.reverse(x, [axis]), tf.roll(x, 1, axis))

    assert Planned(turn(1), [ROWS, 4]).gathered == []
    assert Planned(turn(0), [ROWS, 4]).gathered == ["ReverseV2", "Roll"]


def test_one_hot_gives_an_axis():
    kinds = kinds_of(lambda x: tf.one_hot(x, 3, axis=0), [ROWS, "int32"])
    assert kinds == ["rows on 1"]


def test_matrices_of_rows():
    plan = Planned(lambda x: tf.linalg.diag_part(x), [ROWS, 3, 3])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


def test_blocks_of_rows_are_gathered_in_order():
    """Seven rows on three replicas: `[x0 … x6, y0 … y6]`."""
    same(
        lambda x: (tf.cumsum(tf.concat([x, -x], 0), 0),), [7, 2], num_replicas=3
    )


def test_one_row_is_no_axis_to_drop():
    """A share of one row may have none."""
    for static in (False, True):
        same(lambda x: (tf.squeeze(x, 0) * 2,), [1, 2], static=static)
        same(lambda x: (x[None] * 2,), [1, 2], static=static)


@pytest.mark.parametrize("static", [True, False])
def test_a_size_behind_the_rows_is_not_inferred_of_no_rows(static):
    def flattened(x):
        rows = tf.shape(x)[0] * 3
        return (tf.transpose(tf.reshape(x, [rows, -1])),)

    same(flattened, [3, 3, 4], num_replicas=5, static=static)


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:, 1:3],
        lambda x: x[:, :-1],
        lambda x: x[:, -2:],
        lambda x: x[:, ::2],
        lambda x: x[:, ::-1],
        lambda x: x[:, 3:1],
        lambda x: x[:, 1:9],
        lambda x: x[..., tf.newaxis, 4:1:-1],
    ],
)
def test_sizes_of_parts_are_known(part):
    """TensorFlow doesn't know them where it doesn't know the whole's."""
    partitioned = Partitioned(
        lambda x: part(tf.reshape(x, [tf.shape(x)[0], -1])), replicas(2)
    )
    program = partitioned.program((tf.TensorSpec([ROWS, 5]),))
    (out,) = program.trace.graph.outputs
    assert out.shape[1:] == part(tf.zeros([7, 5])).shape[1:]


def test_a_band_of_diagonals_is_one_matrix():
    same(lambda x: (tf.linalg.diag(x, k=(-1, 1)),), [4, 3, 4], num_replicas=3)


@pytest.mark.parametrize("of_all", [lambda e: e[:, :3], lambda e: e[None]])
def test_triangular_systems_with_a_right_side_for_all(of_all):
    def step(x):
        matrices = x + 4 * tf.eye(4)
        return (tf.linalg.triangular_solve(matrices, of_all(tf.eye(4))),)

    for rows in (4, 1):
        same(step, [rows, 4, 4], num_replicas=3)


def test_tridiagonal_systems_of_rows():
    """The size of a matrix is known although TensorFlow doesn't know it."""

    def step(x):
        x = tf.reshape(x, [tf.shape(x)[0], -1, 4])
        bands = tf.tanh(x[:, None, :, 0]) + [[0], [4], [0]]
        return tf.reshape(tf.linalg.tridiagonal_solve(bands, x), [-1, 4])

    plan = Planned(step, [ROWS, 20])
    assert (plan.kinds, plan.gathered) == (["rows on 0, 1 * rows * 5"], [])


def test_tridiagonal_systems_with_one_matrix():
    """Right sides may be rows; a part of a sum of them stays one."""
    bands = tf.ones([3, 5])
    solve = tf.linalg.tridiagonal_solve
    assert kinds_of(lambda x: solve(bands, tf.transpose(x)), [ROWS, 5]) == [
        "rows on 1"
    ]
    assert kinds_of(
        lambda x: solve(bands, tf.reduce_sum(x, 0)), [ROWS, 5, 4]
    ) == ["partial sum"]
