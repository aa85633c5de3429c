"""Loops of one's own, in a `tf.function` and outside of `strategy.run`.

Each ends with one device's weights and slots, whatever is divided. Sizes are such
that parts of some variables have one column, others uneven rows.
"""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu.partitioner.runtime.sharded_variable import ShardedVariable
from tests.strategies.sharded import mirrored

X = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
Y = X[:, :2] - X[:, 2:]

SETTINGS = {
    "weights": lambda: mirrored(2, "weights"),
    "uneven": lambda: mirrored(3, "weights"),
    "optimizer": lambda: mirrored(2, "optimizer"),
    "offload": lambda: mirrored(2, "weights", offload="optimizer"),
    "groups": lambda: mirrored(4, "weights", shard_over=2),
    "mesh": lambda: kerasmgpu.strategy(
        mesh=(2, 2), layout={".*kernel": (None, "model")}
    ),
}


def network():
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(9, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2),
        ]
    )


def gradients(model):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(X, training=True) - Y))
    return tape.gradient(loss, model.trainable_variables)


def applied(model, optimizer, average):
    optimizer.apply(gradients(model), model.trainable_variables)


def averaged(model, optimizer, average):
    pairs = zip(gradients(model), model.trainable_variables)
    optimizer.apply_gradients(pairs)
    for mean, weight in zip(average.weights, model.weights):
        mean.assign(0.9 * mean + 0.1 * weight)


def by_hand(model, optimizer, average):
    for number, (weight, gradient) in enumerate(
        zip(model.trainable_variables, gradients(model))
    ):
        if number % 2:
            weight.assign_sub(0.1 * gradient)
        else:
            weight.assign(keras.ops.subtract(weight, 0.1 * gradient))


def by_rows(model, optimizer, average):
    kernel = model.trainable_variables[0].value
    strategy = getattr(kernel, "distribute_strategy", None)
    with strategy.scope() if strategy else contextlib.nullcontext():
        gradient = gradients(model)[0]
        rows = tf.IndexedSlices(0.1 * gradient[1:3], tf.constant([1, 2]))
        kernel.scatter_sub(rows)


STEPS = {one.__name__: one for one in (applied, averaged, by_hand, by_rows)}
ADAM = {
    "plain": {},
    "accumulating": {"gradient_accumulation_steps": 2},
    "averaging": {"use_ema": True, "ema_overwrite_frequency": 2},
}


def trained(step, is_unrolled, settings):
    keras.utils.set_random_seed(0)
    model, average = network(), network()
    optimizer = keras.optimizers.Adam(0.05, **settings)
    optimizer.build(model.trainable_variables)

    @tf.function
    def loop(number):
        if is_unrolled:
            for _ in range(3):
                step(model, optimizer, average)
        else:
            for _ in tf.range(number):
                step(model, optimizer, average)

    def run():
        loop(tf.constant(3))
        everything = model.weights + average.weights + optimizer.variables
        return [np.array(one.numpy()) for one in everything]

    return run, [one.value for one in model.weights]


def require_one_device(setting, step, is_unrolled=False, **settings):
    run, _ = trained(step, is_unrolled, settings)
    expected = run()
    with SETTINGS[setting]().scope():
        run, variables = trained(step, is_unrolled, settings)
    if setting != "optimizer":
        assert any(isinstance(one, ShardedVariable) for one in variables)
    for one, other in zip(expected, run(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)


# Two steps in the quick tier; a setting for each before a merge; nightly, all.
QUICK, SLOW = {(1, 3), (2, 2)}, {(0, 4), (3, 5)}
LOOPS = [
    pytest.param(
        step,
        setting,
        id=f"{step}-{setting}",
        marks=()
        if (first, second) in QUICK
        else [
            pytest.mark.slow if (first, second) in SLOW else pytest.mark.nightly
        ],
    )
    for first, step in enumerate(STEPS)
    for second, setting in enumerate(SETTINGS)
]


@pytest.mark.parametrize("step, setting", LOOPS)
def test_a_loop_ends_with_one_devices_values(step, setting):
    require_one_device(setting, STEPS[step])


@pytest.mark.nightly
@pytest.mark.parametrize("setting", ["weights", "groups"])
@pytest.mark.parametrize("optimizer", ADAM)
def test_unrolled_steps_do_as_well(optimizer, setting):
    require_one_device(setting, applied, True, **ADAM[optimizer])


def test_the_whole_value_lives_for_one_call():
    with mirrored(2, "weights").scope():
        variable = tf.Variable(tf.ones([4, 2]))
    strategy = variable.distribute_strategy

    @tf.function
    def change():
        with strategy.scope():
            variable.scatter_sub(
                tf.IndexedSlices(tf.ones([1, 2]), tf.constant([3]))
            )

    change()
    change()
    np.testing.assert_array_equal(
        variable.numpy(), [[1, 1], [1, 1], [1, 1], [-1, -1]]
    )
    held = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32)
    assert held.shape == [0]
