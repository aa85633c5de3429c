"""LARS against its formula by hand, in NumPy."""

import keras
import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.alexnet.lars import LARS

RATE, MOMENTUM, DECAY, TRUST = 2.0, 0.9, 0.01, 0.1


def lars():
    return LARS(RATE, MOMENTUM, DECAY, TRUST)


def steps_by_hand(weights, gradients):
    """Algorithm 1 of the paper in float64."""
    velocity = np.zeros_like(weights)
    for gradient in gradients:
        weight_norm = np.linalg.norm(weights)
        local = (
            TRUST
            * weight_norm
            / (np.linalg.norm(gradient) + DECAY * weight_norm)
        )
        velocity = MOMENTUM * velocity + RATE * local * (
            gradient + DECAY * weights
        )
        weights = weights - velocity
    return weights


def updated(optimizer, weights, gradients):
    variable = keras.Variable(weights, dtype="float32")
    optimizer.build([variable])
    for gradient in gradients:
        optimizer.apply([keras.ops.cast(gradient, "float32")])
    return keras.ops.convert_to_numpy(variable)


def test_two_steps_of_a_kernel_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    weights, *gradients = rng.normal(size=(3, 4, 5))
    np.testing.assert_allclose(
        updated(lars(), weights, gradients),
        steps_by_hand(weights, gradients),
        rtol=1e-5,
    )


def test_the_size_of_the_gradient_does_not_matter_without_weight_decay():
    weights, gradient = np.random.default_rng(1).normal(size=(2, 3, 3))
    results = [
        updated(LARS(1.0), weights, [scale * gradient]) for scale in (1, 1000)
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)


def test_biases_get_plain_momentum():
    bias = np.array([1.0, 2.0])
    gradient = np.array([0.5, -0.5])
    # The second step moves by 0.9 of the first, and by the gradient again.
    expected = bias - RATE * gradient * (1 + (1 + MOMENTUM))
    np.testing.assert_allclose(
        updated(lars(), bias, [gradient, gradient]), expected, rtol=1e-6
    )


@pytest.mark.parametrize(
    "weights, gradient, expected",
    [
        (np.zeros((2, 2)), np.ones((2, 2)), np.full((2, 2), -RATE)),
        (np.ones((2, 2)), np.zeros((2, 2)), np.ones((2, 2))),
    ],
)
def test_zero_weights_and_zero_gradients_stay_finite(
    weights, gradient, expected
):
    np.testing.assert_allclose(updated(lars(), weights, [gradient]), expected)


def test_it_is_serialised_with_its_settings():
    optimizer = keras.optimizers.deserialize(
        keras.optimizers.serialize(LARS(RATE, 0.8, DECAY, TRUST, clipnorm=1.0))
    )
    assert isinstance(optimizer, LARS)
    config = optimizer.get_config()
    assert config["momentum"] == 0.8
    assert config["weight_decay"] == DECAY
    assert config["trust_coefficient"] == TRUST
    assert config["clipnorm"] == 1.0
    # Keras's own, decoupled weight decay must not come on top.
    assert optimizer.weight_decay is None


def test_replicas_make_the_update_of_one_device(replicas):
    x = np.random.default_rng(4).normal(size=(7, 3)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    weights = []
    for count in (1, 2):
        with replicas(count).scope():
            keras.utils.set_random_seed(5)
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
            model.compile(lars(), "mse")
        model.fit(x, y, batch_size=7, epochs=3, shuffle=False, verbose=0)
        weights.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-5)


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(momentum=-0.1), "momentum=-0.1"),
        (dict(weight_decay=-1), "weight_decay=-1"),
        (dict(trust_coefficient=0), "trust_coefficient=0"),
    ],
)
def test_bad_numbers_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        LARS(**settings)
