"""Range tests of real models, which are then as before."""

import contextlib
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras import random_state
from kerasmgpu.errors import InputError
from tests import console
from tests.finders import programs

ROWS = np.random.default_rng(0).normal(size=(300, 6))
TARGETS = np.tanh(ROWS @ np.arange(6.0)[:, None] / 3)


def find(model, data=(ROWS, TARGETS), **arguments):
    return kerasmgpu.find_learning_rate(
        model, data, **{"steps": 40, "show": False, **arguments}
    )


def net(strategy=None, optimizer=None, **compile_args):
    keras.utils.set_random_seed(3)
    scope = strategy.scope if strategy else contextlib.nullcontext
    with scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, "tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.3),
                keras.layers.Dense(1),
            ]
        )
        optimizer = optimizer() if optimizer else "adam"
        arguments = {"metrics": ["mae"], **compile_args}
        model.compile(optimizer, "mse", **arguments)
    return model


def state(model):
    return [
        np.copy(tf.convert_to_tensor(variable.value))
        for variable in [*model.variables, *model.optimizer.variables]
    ]


def scheduled():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    return keras.optimizers.SGD(schedule, momentum=0.9)


def scaled():
    return keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01), initial_scale=8.0
    )


@pytest.mark.nightly(but=1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "num_replicas, optimizer, compile_args",
    [
        (None, scheduled, {}),
        (2, scaled, {"steps_per_execution": 2}),
    ],
)
def test_the_model_and_generators_are_as_before(
    replicas, num_replicas, optimizer, compile_args
):
    strategy = num_replicas and replicas(num_replicas)

    def fit(model, **arguments):
        model.fit(ROWS, TARGETS, batch_size=32, verbose=0, **arguments)

    def trained(test):
        model = net(strategy, optimizer, **compile_args)
        fit(model)
        before, history = state(model), model.history
        numbers = generators()
        function = model.train_function
        if test:
            found = find(model, global_batch_size=16, steps=20)
            assert len(found.losses) > 10
            for one, other in zip(before, state(model), strict=True):
                np.testing.assert_array_equal(one, other)
            assert generators() == numbers
            assert model.history is history
            assert model.train_function is function
        fit(model, epochs=2)
        return state(model)

    for one, other in zip(trained(False), trained(True), strict=True):
        np.testing.assert_array_equal(one, other)


class Noisy(keras.utils.PyDataset):
    """Batches with noise of the global generators."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        x = np.random.normal(size=(8, 6)) + random.random()
        return x + keras.random.normal((8, 6)), x[:, :1]


def generators():
    """The state of all global generators, as text."""
    return repr(random_state.read())


@pytest.mark.parametrize("has_drawn", [True, False])
def test_generators_that_the_data_read_are_as_before(has_drawn):
    keras.utils.clear_session()  # Keras has no generator then.
    model = net()
    if has_drawn:
        keras.random.uniform(())
    before = generators()
    find(model, Noisy(), steps=10)
    assert generators() == before
    keras.random.uniform(())
    assert generators() != before


@pytest.fixture
def float64():
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


@pytest.mark.slow
def test_replicas_have_the_losses_of_one_device(replicas, float64):
    one = find(net(), divergence=1e9)
    assert len(one.losses) == 40 and one.suggestion is not None
    many = find(net(replicas(3)), divergence=1e9)
    np.testing.assert_allclose(many.losses, one.losses, rtol=1e-9)
    assert many.suggestion == one.suggestion
    assert many.steepest == one.steepest


def test_a_schedule_has_no_effect(float64):
    def plain():
        return keras.optimizers.SGD(0.1, momentum=0.9)

    rates = find(net(optimizer=plain))
    assert find(net(optimizer=scheduled)) == rates


def test_losses_are_those_of_steps_with_the_rates():
    x = np.ones((1, 1), "float32")
    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.compile(keras.optimizers.SGD(), "mse")
    model.set_weights([np.zeros((1, 1))])
    found = find(model, (x, x), low=0.01, high=10, smoothing=0)
    weight, expected = 0.0, []
    for rate in found.learning_rates:
        expected.append((1 - weight) ** 2)
        weight += rate * 2 * (1 - weight)
    np.testing.assert_allclose(found.losses, expected, rtol=1e-4, atol=1e-9)
    # Each step multiplies the error by |1 - 2 rate|: above 1 it diverges.
    assert found.diverged and found.losses[-1] > 4 * min(found.losses)
    assert 1 < found.learning_rates[-1] < 10
    assert 0.01 < found.suggestion < 0.5 <= found.minimum < 1.1


def test_what_is_shown_and_drawn(capsys, tmp_path):
    plot = tmp_path / "plot.png"
    found = find(net(), show=True, plot=plot)
    assert capsys.readouterr().out == f"{found}\n"
    assert str(found).startswith(f"learning rate: {found.suggestion:.2g} (mid")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_a_loss_that_never_falls_has_no_suggestion():
    model = net()
    model.trainable = False
    model.compile("sgd", lambda y, p: tf.reduce_sum(p) * 0 + 2)
    found = find(model)
    assert found.suggestion is found.steepest is found.minimum is None
    assert str(found).startswith("no learning rate: the loss did not fall")


def test_loss_that_is_not_finite_ends_the_test():
    model = net(optimizer=lambda: keras.optimizers.SGD())
    found = find(model, low=1, high=1e30, divergence=1e99)
    assert found.diverged and len(found.losses) < 40
    assert np.isfinite(found.losses).all()
    for value in state(model):
        assert np.isfinite(value).all()


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "data",
    [
        tf.data.Dataset.from_tensor_slices((ROWS, TARGETS)).batch(32),
        tf.data.Dataset.from_tensor_slices((ROWS, TARGETS)).batch(32).repeat(),
    ],
)
def test_data_sets_are_repeated(data):
    assert len(find(net(), data, divergence=1e9, steps=20).losses) == 20


def test_shuffled_data_are_noted(capsys):
    data = tf.data.Dataset.from_tensor_slices((ROWS, TARGETS))
    find(net(), data.shuffle(300).batch(32), steps=10)
    assert "draws a seed for each pass" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(low=0), "low must be a finite number above 0"),
        (dict(smoothing=1), "smoothing must be a number of at least 0, below"),
        (dict(divergence=1), "divergence must be a number above 1"),
        (dict(global_batch_size=0), "global_batch_size must be an integer"),
        (dict(data=iter(())), "data must be arrays with the same number"),
        (dict(data=(ROWS, TARGETS[1:])), "data must be arrays with the same"),
        (dict(data=(n for n in [1])), "Received: a generator"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        find(net(), **arguments)


def test_models_that_can_not_be_restored():
    model = keras.Sequential([keras.layers.Dense(1)])
    with pytest.raises(InputError, match="not compiled, or not built"):
        find(model)
    model.compile("sgd", "mse")
    with pytest.raises(InputError, match="not compiled, or not built"):
        find(model)


@pytest.mark.slow
def test_the_command_prints_a_suggestion(tmp_path):
    console.put_module(programs, tmp_path)
    flags = ["--virtual_devices=4", "--steps=30", "--low=1e-4"]
    done = console.run(
        "find_learning_rate", "my_module:on_a_mesh", *flags, folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("learning rate: 0.")
