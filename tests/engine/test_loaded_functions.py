"""Functions of a SavedModel, called in the scope in which it was loaded."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

X = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")


class Module(tf.Module):
    def __init__(self):
        self.kernel = tf.Variable(tf.ones((3, 2)))
        self.steps = tf.Variable(0, trainable=False)
        self.total = tf.Variable(
            0.0,
            trainable=False,
            aggregation=tf.VariableAggregation.SUM,
            synchronization=tf.VariableSynchronization.ON_READ,
        )

    @tf.function(input_signature=[tf.TensorSpec((None, 3))])
    def serve(self, x):
        return x @ self.kernel + tf.cast(self.steps, tf.float32) + self.total

    @tf.function(input_signature=[tf.TensorSpec((None, 3))])
    def train(self, x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(x @ self.kernel - 1))
        self.kernel.assign_sub(0.1 * tape.gradient(loss, self.kernel))
        self.steps.assign_add(1)
        self.total.assign_add(loss)
        return loss


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("saved") / "module")
    tf.saved_model.save(Module(), folder)
    return folder


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    folder = str(tmp_path_factory.mktemp("exported") / "model")
    model.export(folder, verbose=False)
    return folder, np.array(model(X))


def used(folder, in_graph, scope, inside):
    """What a loaded module answers before and after two steps, and its state."""
    with scope():
        loaded = tf.saved_model.load(folder)
    with scope() if inside else contextlib.nullcontext():

        def both(x):
            before = loaded.serve(x)
            losses = [loaded.train(x), loaded.train(x)]
            return before, *losses, loaded.serve(x)

        given = tf.constant(X)
        found = list((tf.function(both) if in_graph else both)(given))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(loaded.serve(given)))
        found.append(tape.gradient(loss, loaded.kernel))
    copied = [loaded.kernel, loaded.steps]
    found += [*copied, loaded.total.read_value()]
    return [np.array(one) for one in found], copied


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("in_graph", [False, True])
def test_a_module_answers_and_changes_as_on_one_device(
    replicas, saved, in_graph, inside
):
    expected, _ = used(saved, in_graph, contextlib.nullcontext, inside)
    found, copied = used(saved, in_graph, replicas(2).scope, inside)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)
    for variable in copied:
        first, other = variable.values
        np.testing.assert_array_equal(other.numpy(), first.numpy())


def test_an_exported_model_is_served_in_the_scope(replicas, exported):
    folder, expected = exported
    with replicas(2).scope():
        loaded = tf.saved_model.load(folder)
        signature = loaded.signatures["serving_default"]
        (signed,) = signature(tf.constant(X)).values()
        layer = keras.layers.TFSMLayer(folder, call_endpoint="serve")
        answers = loaded.serve(X), signed, layer(X)
    for answer in answers:
        np.testing.assert_allclose(answer, expected, rtol=1e-6)


def test_after_set_distribution_too(exported):
    folder, expected = exported
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"])
    )
    try:
        loaded = tf.saved_model.load(folder)
        np.testing.assert_allclose(loaded.serve(X), expected, rtol=1e-6)
    finally:
        keras.distribution.set_distribution(None)


def test_a_layer_of_it_trains_with_others(replicas, exported):
    folder, _ = exported

    def history(scope):
        with scope():
            inputs = keras.Input((3,))
            layer = keras.layers.TFSMLayer(folder, call_endpoint="serve")
            outputs = keras.layers.Dense(1, "tanh", kernel_initializer="ones")
            model = keras.Model(inputs, outputs(layer(inputs)))
            model.compile("sgd", "mse")
        model.fit(X, X[:, :1], batch_size=3, shuffle=False, verbose=0)
        return model.predict(X, verbose=0)

    expected = history(contextlib.nullcontext)
    found = history(replicas(2).scope)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
