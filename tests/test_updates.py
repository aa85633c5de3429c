"""Updates with fewer operations give what Keras's formula gives."""

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


def trained(make, strategy=None):
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
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
    ],
)
def test_the_kernel_is_used(name, kernel, replicas):
    strategy = replicas(2)
    model, _ = trained(OPTIMIZERS[name], strategy)
    x = np.ones((4, 3))

    @tf.function
    def step():
        return strategy.run(model.train_step, args=((x, x[:, :1]),))

    kinds = [
        node.type
        for node in step.get_concrete_function().graph.get_operations()
    ]
    assert kinds.count(kernel) == 2 * len(model.trainable_variables)


def test_what_all_variables_share_is_computed_once(replicas):
    strategy = replicas(2)
    model, _ = trained(OPTIMIZERS["adam"], strategy)
    x = np.ones((4, 3))

    @tf.function
    def step():
        return strategy.run(model.train_step, args=((x, x[:, :1]),))

    operations = step.get_concrete_function().graph.get_operations()
    assert [node.type for node in operations].count("Pow") == 2 * 2


def test_a_subclass_with_its_own_step_keeps_it(replicas):
    class Half(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            self.assign_sub(variable, 0.5 * gradient * learning_rate)

    _, expected = trained(lambda: keras.optimizers.SGD(0.05))
    _, found = trained(lambda: Half(0.1), replicas(2))
    for a, b in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
