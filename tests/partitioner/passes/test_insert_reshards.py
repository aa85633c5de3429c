"""Reshards stand wherever a placement changes."""

import tensorflow as tf


def test_what_a_rule_wants_whole_is_resharded(dumped):
    """`top_k` wants its last axis, here the rows, whole."""
    text = dumped(lambda x: tf.math.top_k(tf.transpose(x), 1)[0], [None, 2])
    assert (
        text["insert_reshards"]
        == """\
given Placeholder:0 R
transpose/perm:0 R = Const([1, 0])
Placeholder:0 S(0) = Reshard(Placeholder:0 R)
transpose:0 S(1) = Transpose(Placeholder:0 S(0), transpose/perm:0 R)
TopKV2/k:0 R = Const(1)
transpose:0 R = Reshard(transpose:0 S(1))
TopKV2:0 R, TopKV2:1 R = TopKV2(transpose:0 R, TopKV2/k:0 R)
return TopKV2:0 R
"""
    )


def test_a_value_is_resharded_once(dumped):
    def twice(x):
        total = tf.reduce_sum(x)
        return tf.sin(total), tf.cos(total)

    text = dumped(twice, [None, 2])["insert_reshards"]
    assert text.count("Sum:0 R = Reshard(Sum:0 P(sum))") == 1
