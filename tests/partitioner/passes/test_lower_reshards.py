"""Reshards become communication, slices and recomputation."""

import pytest
import tensorflow as tf

from tests.partitioner.passes.conftest import lines


def test_rows_are_sliced_and_gathered(dumped):
    text = dumped(lambda x: tf.math.top_k(tf.transpose(x), 1)[0], [None, 2])
    assert (
        text["lower_reshards"]
        == """\
given Placeholder:0 R
transpose/perm:0 R = Const([1, 0])
Placeholder:0 S(0) = Slice(Placeholder:0 R)
transpose:0 S(1) = Transpose(Placeholder:0 S(0), transpose/perm:0 R)
TopKV2/k:0 R = Const(1)
transpose:0 R = all_gather(transpose:0 S(1))  2*rows of input 0 * 4 bytes
TopKV2:0 R, TopKV2:1 R = TopKV2(transpose:0 R, TopKV2/k:0 R)
return TopKV2:0 R
"""
    )


@pytest.mark.parametrize(
    "reduction, by",
    [
        (tf.reduce_sum, "sum"),
        (tf.reduce_max, "max"),
        (tf.reduce_min, "min"),
    ],
)
def test_parts_are_reduced(dumped, reduction, by):
    text = dumped(reduction, [None, 2])["lower_reshards"]
    (line,) = lines(text, "all_reduce")
    assert f"all_reduce.{by}(" in line and line.endswith("1 * 4 bytes")


def test_a_mask_is_drawn_for_own_rows(dumped):
    def mask(x):
        drawn = tf.random.stateless_uniform(tf.shape(x), [1, 2])
        return tf.reduce_sum(x * tf.cast(drawn > 0.5, x.dtype))

    text = dumped(mask, [None, 4])["lower_reshards"]
    (draw,) = lines(text, "= StatelessRandomUniformV2(")
    assert "UniformV2:0 S(0) = " in draw and "Shape:0 shape of S(0)" in draw
    assert not lines(text, "all_gather")


def test_no_reshard_is_left(dumped):
    text = dumped(lambda x: tf.sort(x, axis=0) + tf.reduce_mean(x), [None, 2])
    assert lines(text["insert_reshards"], "Reshard")
    assert not lines(text["lower_reshards"], "Reshard")
