"""What goes into a pack comes out again, in its place and shape."""

import keras
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


def test_squares_are_those_of_what_is_packed():
    own = packing.Packing(gradients())
    squares = own.squares(own.pack(gradients()))
    for square, gradient in zip(squares, gradients(), strict=True):
        is_packed = tf.is_tensor(gradient) and tf.size(gradient) < 300 * 300
        if not is_packed or isinstance(gradient, tf.IndexedSlices):
            assert square is None
        else:
            np.testing.assert_array_equal(square, gradient**2)


def test_without_gradients_there_is_nothing_to_pack():
    assert packing.Packing([]).pack([]) == []


def test_last_layers_are_summed_first(monkeypatch):
    monkeypatch.setattr(packing, "BYTES_PER_REDUCTION", 300_000)
    large = [tf.ones([200, 200]) for _ in range(5)]  # 160,000 bytes each
    small = [tf.ones([3]), tf.ones([4])]
    mixed = [large[0], small[0], *large[1:], small[1]]
    own = packing.Packing(mixed)
    packs = own.pack(mixed)
    sizes = [
        [int(tf.size(packs[i])) for i in places] for places in own.reductions()
    ]
    assert sizes == [[40_000, 40_000], [40_000, 40_000], [40_000, 7]]
    assert own.reductions()[0] == [5, 4]
    assert own.num_bytes() == 5 * 160_000 + 7 * 4


def test_types_are_summed_apart():
    own = packing.Packing(gradients())
    types = [pack.dtype for pack in own.pack(gradients())]
    for places in own.reductions():
        assert len({types[i] for i in places}) == 1
    assert sorted(sum(own.reductions(), [])) == list(range(len(types)))


def test_a_late_layer_is_summed_before_an_early_one_has_its_gradient(replicas):
    strategy = replicas(2)
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((200,)), *(keras.layers.Dense(200) for _ in range(3))]
        )
        model.compile("sgd", "mse")
    rows = np.ones((4, 200), "float32")
    step = tf.function(lambda: strategy.run(model.train_step, ((rows, rows),)))
    sums = [
        node
        for node in step.get_concrete_function().graph.get_operations()
        if node.type == "AddN" and node.outputs[0].shape == (200, 200)
    ]
    # Forward, three products lead to the loss. Backward, a layer's gradient
    # is one more on each replica, after those that lead from the loss to it.
    backward = [
        sum("gradient_tape" in node.name for node in products_before(total))
        for total in sums
    ]
    assert backward == [2, 4, 6]
    kernels = sum(layer.count_params() for layer in model.layers)
    assert 0 <= strategy.reduced_bytes_per_step - 4 * kernels < 100


def products_before(operation):
    """The matrix products that an operation of a graph has to wait for."""
    found, waiting = set(), [operation]
    while waiting:
        for value in waiting.pop().inputs:
            if value.op not in found:
                found.add(value.op)
                waiting.append(value.op)
    return [node for node in found if node.type == "MatMul"]
