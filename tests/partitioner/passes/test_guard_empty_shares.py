"""Kernels that fail for no rows are guarded where a share may be empty."""

import pytest
import tensorflow as tf

from tests.partitioner.passes.conftest import lines


@pytest.mark.parametrize(
    "rows, jit_compile, is_guarded",
    [(None, False, True), (2, False, False), (None, True, False)],
)
def test_a_convolution(dumped, rows, jit_compile, is_guarded):
    text = dumped(
        lambda x: tf.nn.conv2d(x, tf.ones([1, 1, 1, 1]), 1, "SAME"),
        [rows, 4, 4, 1],
        jit_compile=jit_compile,
    )
    (line,) = lines(text["guard_empty_shares"], "= Conv2D(")
    assert ("guarded against no rows" in line) == is_guarded
