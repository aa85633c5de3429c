"""Who runs a loop follows from the instructions inside."""

import tensorflow as tf

from tests.partitioner.passes.conftest import lines


def loop(body):
    def step(x):
        return tf.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, body(y)), [0, x]
        )[1]

    return step


def test_a_loop_over_own_rows_runs_on_each_replica(dumped):
    text = dumped(loop(tf.sin), [None, 2])["place_regions"]
    (line,) = lines(text, "= StatelessWhile(")
    assert line.endswith("on each replica")


def test_a_loop_with_a_sum_inside_is_one_of_all_replicas(dumped):
    text = dumped(loop(lambda y: y - tf.reduce_mean(y, 0)), [None, 2])
    (line,) = lines(text["place_regions"], "= StatelessWhile(")
    assert line.endswith("for all replicas together")
    (sum_inside,) = lines(text["place_regions"], "all_reduce")
    assert sum_inside.startswith("    ")


def test_a_loop_over_whole_values_runs_once(dumped):
    def step(x):
        whole = loop(tf.sin)(tf.ones([2]))
        return tf.reduce_sum(x * whole)

    (line,) = lines(
        dumped(step, [None, 2])["place_regions"], "= StatelessWhile("
    )
    assert line.endswith("  once")
