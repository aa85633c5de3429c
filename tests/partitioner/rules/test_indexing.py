"""Rules for gathers, scatters and segment sums."""

import tensorflow as tf

from tests.partitioner.rules.planned import ROWS, Planned, kinds_of, same


def test_rows_of_numbers_choose_from_a_table():
    table = tf.ones([5, 4])
    plan = Planned(lambda x: tf.gather(table, x), [ROWS, 3, "int32"])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


def test_another_axis_of_rows_is_chosen_from():
    plan = Planned(lambda x: tf.gather(x, [2, 0], axis=1), [ROWS, 4])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


def test_rows_that_are_chosen_from_are_whole():
    same(lambda x: (tf.gather(x, [2, 0]),), [3, 2])


def test_each_row_chooses_from_itself():
    def choose(x, numbers):
        return tf.gather(x, numbers, batch_dims=1)

    plan = Planned(choose, [ROWS, 4], [ROWS, 2, "int32"])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])


def test_a_tables_gradient_is_a_sum_over_replicas():
    def scatter(numbers, x):
        return tf.scatter_nd(numbers[:, None], x, [5, 4])

    kinds = kinds_of(scatter, [ROWS, "int32"], [ROWS, 4])
    assert kinds == ["partial sum"]


def test_segments_of_rows():
    def segments(x, numbers):
        return (
            tf.math.unsorted_segment_sum(x, numbers, 3),
            tf.math.unsorted_segment_max(x, numbers, 3),
        )

    kinds = kinds_of(segments, [ROWS, 4], [ROWS, "int32"])
    assert kinds == ["partial sum", "partial max"]


def test_counts_of_rows():
    def count(numbers):
        numbers = tf.math.floormod(numbers, 4)
        return (tf.math.bincount(numbers, minlength=4, maxlength=4),)

    same(count, [7, "int32"], num_replicas=3)


def test_words_are_put_into_places_on_whole_values():
    def place(words):
        rows = tf.range(tf.shape(words)[0])[:, None]
        return tf.scatter_nd(rows, words, [5])

    plan = Planned(place, [ROWS, "string"])
    assert (plan.kinds, plan.gathered) == (["replicated"], ["ScatterNd"])


def test_places_of_rows_in_a_sequence_for_all():
    def search(x):
        bounds = [-1.0, 0.0, 2.0]
        return (
            tf.searchsorted(bounds, x),
            tf.searchsorted(bounds, x, "right"),
        )

    plan = Planned(search, [ROWS])
    assert (plan.kinds, plan.gathered) == (["rows on 0"] * 2, [])
    for rows in (5, 1):
        same(search, [rows], num_replicas=3)


def test_places_of_rows_in_sequences_of_their_own():
    def search(x, y):
        return (tf.searchsorted(tf.sort(x), y),)

    plan = Planned(search, [ROWS, 4], [ROWS, 3])
    assert (plan.kinds, plan.gathered) == (["rows on 0"], [])
    for rows in (5, 1):
        same(search, [rows, 4], [rows, 3], num_replicas=3)
