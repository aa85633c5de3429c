"""The warning about a model beside a strategy, trained on one device."""

import contextlib
import logging
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras import scope
from kerasmgpu.engine import extended
from tests.devices import device_name, device_names

X, Y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")


@pytest.fixture
def no_strategies(monkeypatch):
    """Forgets the strategies of other tests, and their warning."""
    monkeypatch.setattr(extended, "_made", weakref.WeakSet())
    monkeypatch.setattr(scope, "_has_warned", False)


@pytest.fixture
def warnings(no_strategies, caplog):
    """Function that returns the warnings so far."""
    caplog.set_level(logging.WARNING, "absl")

    def found():
        return [m for m in caplog.messages if "the strategy's" in m]

    return found


def build():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


def fit(model):
    model.fit(X, Y, verbose=0)


def test_a_forgotten_scope_is_told_once(warnings):
    strategy = kerasmgpu.strategy(3)
    model = build()
    fit(model)
    (told,) = warnings()
    assert f"the model {model.name!r}" in told
    assert "3 replicas are not used" in told
    assert "build and compile it into `with strategy.scope():`" in told
    fit(model)
    fit(build())
    with strategy.scope():
        fit(build())
    assert len(warnings()) == 1


def test_of_a_model_that_was_fitted_before_the_strategy(warnings):
    model = build()
    fit(model)
    assert not warnings()
    strategy = kerasmgpu.strategy(2)
    fit(model)
    assert len(warnings()) == 1
    del strategy


@pytest.mark.parametrize(
    "where",
    [
        lambda: kerasmgpu.strategy(2).scope(),
        lambda: kerasmgpu.strategy(1).scope(),
        lambda: tf.distribute.OneDeviceStrategy(device_name(0)).scope(),
        lambda: tf.distribute.MirroredStrategy(device_names(1)).scope(),
    ],
)
def test_a_scope_is_meant(warnings, where):
    strategy = kerasmgpu.strategy(2)
    with where():
        model = build()
    fit(model)
    assert not warnings()
    del strategy


def test_one_replica_leaves_nothing_unused(warnings):
    strategy = kerasmgpu.strategy(1)
    fit(build())
    assert not warnings()
    del strategy


def test_what_is_no_fit(warnings):
    """Loops of one's own, and evaluation and prediction."""
    strategy = kerasmgpu.strategy(2)
    with strategy.scope():
        variable = tf.Variable(1.0)
    strategy.run(lambda: variable.assign_add(1.0))
    model = build()
    model.evaluate(X, Y, verbose=0)
    model.predict(X, verbose=0)
    with tf.GradientTape() as tape:
        loss = keras.ops.mean(model(X))
    gradients = tape.gradient(loss, model.trainable_variables)
    model.optimizer.apply(gradients, model.trainable_variables)
    keras.callbacks.CallbackList([], model=model).on_train_begin()
    assert not warnings()


def test_an_error_is_the_only_word(warnings):
    """A model that is partly in the scope is refused."""
    strategy = kerasmgpu.strategy(2)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with strategy.scope():
        model.compile("sgd", "mse")
    with contextlib.suppress(kerasmgpu.errors.InputError):
        fit(model)
        raise AssertionError("trained")
    assert not warnings()


def test_a_step_that_ran_before_enters_no_scope(monkeypatch):
    """A Ctrl-C while a scope is entered can leave it entered for good."""
    strategy = kerasmgpu.MirroredStrategy(device_names(2))
    entered = []
    scope = strategy.scope

    def counted():
        entered.append(True)
        return scope()

    with scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((64, 3), "float32")
    monkeypatch.setattr(strategy, "scope", counted)
    counts = []
    for rows in (16, 64):
        entered.clear()
        model.fit(x[:rows], x[:rows, :1], 4, verbose=0)
        counts.append(len(entered))
    assert counts[1] <= counts[0] < 16


def test_a_ctrl_c_within_a_scopes_beginning_leaves_none_entered():
    strategy = kerasmgpu.MirroredStrategy(device_names(2))
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", "mse")

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            strategy.scope().__enter__()  # Its end never comes.
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, verbose=0, callbacks=[Interrupt()])
    assert not tf.distribute.has_strategy()
    before = len(model.weights[0].value.values)
    assert not hasattr(tf.Variable(1.0), "values") and before == 2
    with pytest.raises(KeyboardInterrupt), strategy.scope():
        model.fit(X, Y, verbose=0, callbacks=[Interrupt()])
    assert not tf.distribute.has_strategy()
