"""What goes into a pack comes out again, in its place and shape."""

import numpy as np
import tensorflow as tf

from kerasmgpu.step import packing


def gradients():
    return [
        tf.IndexedSlices(tf.ones([2, 3]), tf.constant([0, 4]), [9, 3]),
        tf.range(6.0)[:, None] * tf.ones([6, 2]),
        tf.constant(7.0),
        tf.ones([3], tf.float64),
        tf.ones([300, 300]),
        tf.zeros([0, 5]),
        tf.constant([[1.0], [2.0]], tf.float64),
    ]


def test_small_ones_of_a_type_share_a_pack():
    packs = packing.Packing(gradients()).pack(gradients())
    sizes = [
        "sparse" if isinstance(pack, tf.IndexedSlices) else int(tf.size(pack))
        for pack in packs
    ]
    assert sizes == ["sparse", 12 + 1 + 0, 3 + 2, 300 * 300]


def test_unpacking_gives_each_in_its_place():
    own = packing.Packing(gradients())
    unpacked = own.unpack(own.pack(gradients()))
    for found, expected in zip(unpacked, gradients(), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(
            tf.convert_to_tensor(found), tf.convert_to_tensor(expected)
        )


def test_without_gradients_there_is_nothing_to_pack():
    assert packing.Packing([]).pack([]) == []
