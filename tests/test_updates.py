"""Updates with fewer operations give what Keras's formula gives."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.1, beta_1=0.8, epsilon=1e-4),
    "adamw": lambda: keras.optimizers.AdamW(0.1, weight_decay=0.1),
    "amsgrad": lambda: keras.optimizers.Adam(0.1, amsgrad=True),
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(0.1, 0.9, nesterov=True),
    "schedule": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.CosineDecay(0.1, 10), clipnorm=0.5
    ),
}


def trained(make, strategy=None, floatx="float64"):
    keras.config.set_floatx(floatx)
    keras.config.set_dtype_policy(floatx)
    try:
        with (strategy or tf.distribute.get_strategy()).scope():
            keras.utils.set_random_seed(0)
            model = keras.Sequential(
                [
                    keras.Input((3,)),
                    keras.layers.Dense(5, activation="tanh"),
                    keras.layers.Dense(1),
                ]
            )
            model.compile(make(), "mse")
        x = np.random.default_rng(1).normal(size=(20, 3))
        model.fit(x, x[:, :1], batch_size=8, epochs=4, verbose=0, shuffle=False)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_dtype_policy("float32")
    slots = [variable.numpy() for variable in model.optimizer.variables]
    return model, [*model.get_weights(), *slots]


def operations(model, strategy, dtype="float64"):
    """How often each kind of operation is in a training step."""
    x = np.ones((4, 3), dtype)

    @tf.function
    def step():
        return strategy.run(model.train_step, args=((x, x[:, :1]),))

    graph = step.get_concrete_function().graph
    return collections.Counter(node.type for node in graph.get_operations())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_and_slots_are_those_of_keras(name, replicas):
    _, expected = trained(OPTIMIZERS[name])
    _, found = trained(OPTIMIZERS[name], replicas(2))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    "name, kernel",
    [
        ("sgd", "ResourceApplyGradientDescent"),
        ("nesterov", "ResourceApplyKerasMomentum"),
        ("adam", "ResourceApplyAdam"),
        ("adamw", "ResourceApplyAdam"),
    ],
)
def test_the_kernel_is_used(name, kernel, replicas):
    strategy = replicas(2)
    model, _ = trained(OPTIMIZERS[name], strategy)
    found = operations(model, strategy)
    assert found[kernel] == 2 * len(model.trainable_variables)


def test_what_all_variables_share_is_computed_once(replicas):
    strategy = replicas(2)
    model, _ = trained(OPTIMIZERS["adam"], strategy)
    assert operations(model, strategy)["Pow"] == 2 * 2


@pytest.mark.parametrize("beta_2", [0.999, 0.9999])
def test_float32_is_rounded_as_by_keras(beta_2, replicas):
    # 1 - beta_2 in float32 is up to 2e-4 off in TensorFlow's kernel.
    def adam():
        return keras.optimizers.Adam(0.1, beta_2=beta_2)

    _, found = trained(adam, replicas(2), "float32")
    _, expected = trained(adam, floatx="float32")
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


def test_what_the_kernel_would_round_too_far_is_left_to_keras(replicas):
    strategy = replicas(2)
    model, _ = trained(
        lambda: keras.optimizers.Adam(beta_1=0.9999), strategy, "float32"
    )
    assert not operations(model, strategy, "float32")["ResourceApplyAdam"]


def test_a_subclass_with_its_own_step_keeps_it(replicas):
    class Half(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            self.assign_sub(variable, 0.5 * gradient * learning_rate)

    _, expected = trained(lambda: keras.optimizers.SGD(0.05))
    _, found = trained(lambda: Half(0.1), replicas(2))
    for a, b in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
