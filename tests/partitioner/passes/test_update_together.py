"""Assignments wait for all that can fail, on all replicas."""

import tensorflow as tf

from kerasmgpu.partitioner.rules.elementwise import CHECK_OF_PARTS
from tests.partitioner.passes.conftest import lines


def name(line):
    return line.split(" = ")[0]


def waits(text, barrier, *words):
    """Whether each line with all words ends with a control input: a barrier's."""
    found = lines(text, *words)
    assert found
    gates = {
        name(gate)
        for gate in lines(text, "go_on", f"after {name(barrier)}  on")
    }
    return all(any(f" {gate}  on" in line for gate in gates) for line in found)


def barriers(text):
    return [
        line
        for line in lines(text, "= NoOp(")
        if line.startswith("all_computed")
    ]


def test_a_step_that_checks_nothing_has_no_barriers(dumped):
    total = tf.Variable([0.0, 0.0])
    dumps = dumped(lambda x: total.assign_add(tf.reduce_sum(x, 0)), [None, 2])
    assert "update_together" not in dumps


def test_the_checks_of_not_finite_need_no_barriers(dumped):
    total = tf.Variable([0.0, 0.0])

    def step(x):
        checked = tf.debugging.check_numerics(x, CHECK_OF_PARTS)
        total.assign_add(tf.reduce_sum(checked, 0))

    assert "update_together" not in dumped(step, [None, 2])


def labelled():
    """A step whose loss TensorFlow checks: labels have the shape of scores."""
    total = tf.Variable(0.0)

    def step(x, labels):
        labels = tf.cast(labels, tf.int32)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
        total.assign_add(tf.reduce_sum(loss))

    return step


def test_a_check_of_sizes_that_can_not_fail_needs_no_barriers(dumped):
    dumps = dumped(labelled(), [None, 6, 3], [None, 6])
    assert lines(dumps["infer"], "Assert(")
    assert "update_together" not in dumps


def test_a_check_of_sizes_that_can_fail_needs_barriers(dumped):
    dumps = dumped(labelled(), [None, None, 3], [None, None])
    assert "update_together" in dumps


def test_assignments_wait_for_everything_else(dumped):
    total = tf.Variable([0.0, 0.0])

    def step(x):
        total.assign_add(tf.reduce_sum(x, 0))
        return tf.debugging.check_numerics(tf.cos(x), "")

    text = dumped(step, [None, 2])["update_together"]
    barrier, *_ = barriers(text)
    for place in (0, 1):
        assert lines(text, "computed", "= NoOp(", f"replica_{place}/Cos")
    assert waits(text, barrier, "= Assign")


def test_what_can_fail_waits_for_assignments_that_do_not_need_it(dumped):
    steps, total = tf.Variable(0), tf.Variable([0.0, 0.0])

    def step(x):
        steps.assign_add(1)
        checked = tf.debugging.check_numerics(tf.sin(x), "")
        total.assign_add(tf.reduce_sum(checked, 0))

    text = dumped(step, [None, 2])["update_together"]
    counted, summed = barriers(text)
    assert waits(text, counted, "StridedSlice(batch_0")
    assert waits(text, summed, "AssignAddVariableOp_1 = Assign")


def test_a_check_that_nothing_needs_comes_last(dumped):
    total = tf.Variable([0.0, 0.0])

    def step(x):
        total.assign_add(tf.reduce_sum(x, 0))
        tf.debugging.assert_less(x, 9.0)

    text = dumped(step, [None, 2])["update_together"]
    *_, last = barriers(text)
    assert waits(text, last, "AssertGuard = If(")
    assert not waits(text, last, "= Assign", "VariableOp(")
