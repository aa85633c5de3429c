"""The networks against NumPy, and saved and loaded."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.recipes.autoencoder import autorec, losses

RATINGS = np.array(
    [[5.0, 0.0, 2.0, 0.5], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]],
    "float32",
)
SPARSE = tf.sparse.from_dense(RATINGS)
COLUMN_BIASES = np.array([0.5, -0.25, 0.0, 0.1], "float32")


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def residual_network(**arguments):
    keras.utils.set_random_seed(0)
    model = autorec.residual_autoencoder(4, (3,), **arguments)
    model.get_layer("biases").set_biases(3.5, COLUMN_BIASES)
    return model


def biases_of(ratings, shrinkage=5.0):
    """Residuals and explained ratings, row by row."""
    residuals, explained = np.zeros_like(ratings), np.zeros_like(ratings)
    for row, values in enumerate(ratings):
        known = np.flatnonzero(values)
        rest = values[known] - 3.5 - COLUMN_BIASES[known]
        row_bias = rest.sum() / (len(known) + shrinkage)
        residuals[row, known] = rest - row_bias
        explained[row] = 3.5 + COLUMN_BIASES + row_bias
    return residuals, explained


@pytest.mark.parametrize("ratings", [SPARSE, tf.constant(RATINGS)])
def test_biases_are_taken_out_of_known_ratings_only(ratings):
    layer = residual_network().get_layer("biases")
    residuals, explained = layer(ratings)
    expected = biases_of(RATINGS)
    np.testing.assert_allclose(residuals, expected[0], atol=1e-6)
    np.testing.assert_allclose(explained, expected[1], atol=1e-6)


def test_residual_network_adds_tastes_to_the_biases():
    model = residual_network()
    into, out = (
        [weight.numpy() for weight in model.get_layer(name).weights]
        for name in ("hidden_1", "tastes")
    )
    residuals, explained = biases_of(RATINGS)
    expected = (
        explained + sigmoid(residuals @ into[0] + into[1]) @ out[0] + out[1]
    )
    np.testing.assert_allclose(model(SPARSE), expected, atol=1e-5)


def test_published_network_is_all_sigmoid_on_the_rating_scale():
    keras.utils.set_random_seed(0)
    model = autorec.published_autoencoder(4, (10, 5, 10), 4.0)
    weights = [weight.numpy() for weight in model.weights]
    assert [kernel.shape[1] for kernel in weights[::2]] == [10, 5, 10, 4]
    values = RATINGS / 4.0
    for kernel, bias in zip(weights[::2], weights[1::2]):
        values = sigmoid(values @ kernel + bias)
    np.testing.assert_allclose(model(SPARSE), 4.0 * values, atol=1e-5)


def test_biases_are_never_trained():
    model = residual_network()
    names = [weight.path for weight in model.trainable_weights]
    assert len(names) == 4
    assert not any("biases/" in name for name in names)


def test_weight_penalty_is_on_kernels_only():
    model = residual_network(weight_penalty=0.5)
    kernels = [model.get_layer(name).kernel for name in ("hidden_1", "tastes")]
    expected = 0.5 * sum(np.square(kernel.numpy()).sum() for kernel in kernels)
    np.testing.assert_allclose(sum(model.losses), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "network", ["residual", pytest.param("published", marks=pytest.mark.slow)]
)
def test_a_saved_model_predicts_the_same(tmp_path, network):
    if network == "residual":
        model = residual_network(weight_penalty=0.1)
        loss = losses.ObservedSquaredError()
    else:
        model = autorec.published_autoencoder(4, (10, 5, 10), 5.0)
        loss = losses.WholeRowSquaredError()
    metrics = [
        losses.ObservedRMSE(0.5, 5.0),
        losses.WholeRowLoss(),
    ]
    model.compile("adam", loss, metrics=metrics, jit_compile=False)
    batch = tf.data.Dataset.from_tensors((SPARSE, SPARSE))
    path = tmp_path / "model.keras"
    model.save(path)
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded(SPARSE), model(SPARSE))
    assert loaded.evaluate(batch, verbose=0) == model.evaluate(batch, verbose=0)
