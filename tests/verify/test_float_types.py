"""In the scope everything that is made is float64, and behind it as before."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from kerasmgpu.distances import dtype_of
from kerasmgpu.verify.float64_functions import batches_of_float64
from kerasmgpu.verify.float_types import float64_in_place_of_less


def net(**settings):
    return keras.Sequential([keras.Input((3,)), layers.Dense(2, **settings)])


@pytest.mark.parametrize(
    "policy", ["float32", "float16", "mixed_bfloat16", "mixed_float16"]
)
def test_policies_are_float64(policy):
    with float64_in_place_of_less():
        model = net(dtype=policy)
        assert dtype_of(model) == "float64"
        assert {weight.dtype for weight in model.weights} == {"float64"}
        keras.mixed_precision.set_global_policy(policy)
        keras.config.set_floatx("float16")
        assert dtype_of(net()) == "float64"
        assert keras.metrics.Mean(dtype=policy).dtype == "float64"
    assert dtype_of(net()) == keras.config.floatx() == "float32"
    assert dtype_of(net(dtype=policy)) == policy.removeprefix("mixed_")


def test_integers_stay_what_they_are():
    with float64_in_place_of_less():
        assert keras.DTypePolicy("int32").compute_dtype == "int32"
        assert tf.cast(1.5, tf.int32).dtype == tf.int32
        assert tf.constant([1]).dtype == tf.range(3).dtype == tf.int32
        assert tf.zeros([2], tf.int64).dtype == tf.int64
        assert tf.convert_to_tensor(["a"]).dtype == tf.string


FLOATS = np.ones(3, "float32")
PIXELS = np.ones(3, "uint8")


class Weighs(layers.Layer):
    def build(self, _):
        self.weight = self.add_weight(shape=(), dtype="float32")

    def call(self, inputs):
        return tf.nn.relu(self.weight) * inputs


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.cast(FLOATS, tf.float32),
        lambda: tf.cast([1, 2], "float16"),
        lambda: tf.constant(0.5),
        lambda: tf.convert_to_tensor(FLOATS),
        lambda: tf.convert_to_tensor([1.0, 2.0]),
        lambda: tf.zeros([3]),
        lambda: tf.ones([3], dtype=tf.float32),
        lambda: tf.one_hot([1, 0], 2),
        lambda: tf.range(3, dtype=tf.float32),
        lambda: tf.random.normal([2]),
        lambda: tf.random.stateless_uniform([2], seed=[1, 2]),
        lambda: keras.ops.cast([1, 2], "float32"),
        lambda: keras.ops.convert_to_tensor(0.5),
        lambda: keras.ops.zeros([2], dtype="float32"),
        lambda: keras.ops.one_hot([1, 0], 2, dtype="float32"),
        lambda: keras.ops.full([2], 0.1, dtype="float32"),
        lambda: keras.random.normal([2], dtype="float32"),
        lambda: tf.image.convert_image_dtype(PIXELS, tf.float32),
        lambda: tf.keras.backend.cast([1, 2], "float32"),
        lambda: tf.fill([2], 0.1),
        lambda: tf.linspace(0.1, 1.0, 3),
        lambda: tf.where(tf.constant([True, False]), 1.0, FLOATS[:2]),
        lambda: tf.stack([0.1, 0.2]),
        lambda: tf.sqrt(2.0),
    ],
)
def test_numbers_made_by_hand_are_float64(make):
    with float64_in_place_of_less():
        assert make().dtype == tf.float64
        assert tf.function(make)().dtype == tf.float64
    assert make().dtype in (tf.float32, tf.float16)


def test_exactly():
    with float64_in_place_of_less():
        assert float(tf.constant(0.1)) == 0.1
        assert float(tf.fill([1], 0.1)[0]) == 0.1
        assert float(tf.math.log(2.0)) == math.log(2.0)


def test_weights_are_float64():
    with float64_in_place_of_less():
        layer = Weighs()
        assert layer(FLOATS).dtype == tf.float64
        assert layer.weight.dtype == "float64"
        metric = keras.metrics.Mean()
        state = metric.add_weight(initializer="zeros", dtype="float32")
        assert state.dtype == "float64"
    layer = Weighs()
    layer.build(None)
    assert layer.weight.dtype == "float32"


def test_a_tensor_of_another_type_keeps_it():
    """As a variable of float32 that a layer makes by hand."""
    made = tf.constant(0.5)
    with float64_in_place_of_less():
        assert tf.convert_to_tensor(made).dtype == tf.float32
        assert tf.convert_to_tensor([made, made]).dtype == tf.float32
        assert tf.where([True], made, 0.0).dtype == tf.float32


def results(dtype):
    random = np.random.default_rng(0)
    logits = random.normal(size=(2, 5, 4)).astype(dtype)
    volumes = random.normal(size=(2, 4, 4, 4, 1)).astype(dtype)
    labels = np.array([[1, 2], [3, 1]])
    return (
        keras.metrics.sparse_top_k_categorical_accuracy(
            labels[:, 0], logits[:, 0], k=2
        ),
        keras.losses.CTC()(labels, logits),
        layers.MaxPooling3D(2)(volumes),
    )


def test_what_has_no_float64_takes_it():
    with float64_in_place_of_less():
        wide = results("float64")
    for one, other in zip(wide, results("float32"), strict=True):
        assert one.dtype == tf.float64
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_libraries_cast_as_they_need():
    """Keras's `argmax` looks at the bits of a float32."""
    with float64_in_place_of_less():
        rotated = layers.RandomRotation(0.1)(np.ones((2, 4, 4, 1)))
        assert rotated.dtype == tf.float64
        assert int(keras.ops.argmax(tf.constant([0.0, 2.0, 1.0]))) == 1


def test_a_data_set_keeps_its_structure():
    of_one = tf.data.Dataset.from_tensors(FLOATS)
    (batch,) = batches_of_float64(of_one)
    assert batch.dtype == tf.float64
    pairs = tf.data.Dataset.from_tensors(({"a": FLOATS}, np.array([1, 2])))
    ((inputs, labels),) = batches_of_float64(pairs)
    assert inputs["a"].dtype == tf.float64 and labels.dtype == tf.int64
    integers = tf.data.Dataset.range(3)
    assert batches_of_float64(integers) is integers
