"""Resets of TensorFlow's global state within a scope."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.devices import device_names

X = np.arange(24, dtype="float32").reshape(8, 3) / 24
Y = X[:, :2]

RESETS = {
    "keras.backend": keras.backend.clear_session,
    "keras.utils": keras.utils.clear_session,
    "tf.compat.v1.keras": tf.compat.v1.keras.backend.clear_session,
    "default graph": tf.compat.v1.reset_default_graph,
    "twice": lambda: [keras.utils.clear_session() for _ in range(2)],
}
RESET_FIRST = ("keras.backend", "default graph")
"""Called before the scope's first model; the others, between two models."""


def build(reset=lambda: None):
    reset()
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", "mse", metrics=["mae"])
    return model


def trained(model, callbacks=()):
    model.fit(X, Y, batch_size=5, epochs=2, verbose=0, callbacks=[*callbacks])
    return model.get_weights()


def assert_all_have_copies(model, strategy):
    model.optimizer.build(model.trainable_variables)
    for variable in (*model.variables, *model.optimizer.variables):
        assert variable.value.distribute_strategy is strategy
        copies = strategy.experimental_local_results(variable.value)
        assert len(copies) == strategy.num_replicas_in_sync


@pytest.fixture(scope="module")
def expected():
    return trained(build())


def assert_as_expected(model, strategy, expected):
    weights = trained(model)
    assert_all_have_copies(model, strategy)
    for one, many in zip(expected, weights, strict=True):
        np.testing.assert_allclose(many, one, atol=1e-6)


def assert_no_scope():
    assert not tf.distribute.has_strategy()
    assert not hasattr(tf.Variable(1.0), "values")


@pytest.mark.parametrize("name, reset", RESETS.items(), ids=RESETS)
def test_what_follows_is_under_the_strategy(replicas, expected, name, reset):
    strategy = replicas(2)
    with strategy.scope():
        if name not in RESET_FIRST:
            build()
        model = build(reset)
        assert tf.distribute.get_strategy() is strategy
    assert_no_scope()
    assert_all_have_copies(model, strategy)
    if name in ("keras.utils", "default graph"):
        assert_as_expected(model, strategy, expected)


def test_scopes_may_be_nested(replicas):
    strategy = replicas(2)
    with strategy.scope():
        with strategy.scope():
            keras.utils.clear_session()
        assert tf.distribute.get_strategy() is strategy
        with strategy.scope():
            model = build()
    assert_no_scope()
    assert_all_have_copies(model, strategy)


def test_user_scopes_around_ours_stay(replicas):
    made = []

    def creator(next_creator, **settings):
        made.append(settings["name"])
        return next_creator(**settings)

    with tf.variable_creator_scope(creator):
        with replicas(2).scope():
            keras.utils.clear_session()
            inside = tf.Variable(1.0, name="inside")
        tf.Variable(1.0, name="around")
    tf.Variable(1.0, name="after")
    assert len(inside.values) == 2
    assert "around" in made and "after" not in made
    assert_no_scope()


def test_get_variable_stays_distributed(replicas):
    with replicas(2).scope():
        tf.compat.v1.reset_default_graph()
        with tf.Graph().as_default():  # Nothing of it has to be reset.
            pass
        # Which the getter of the strategy's scope leaves out.
        parts = tf.compat.v1.fixed_size_partitioner(2)
        variable = tf.compat.v1.get_variable("v", [2], partitioner=parts)
    assert len(variable.values) == 2
    assert_no_scope()


def test_a_strategy_set_without_a_block(replicas):
    strategy = replicas(2)
    tf.distribute.experimental_set_strategy(strategy)
    try:
        model = build(keras.utils.clear_session)
    finally:
        tf.distribute.experimental_set_strategy(None)
    assert_no_scope()
    assert_all_have_copies(model, strategy)


def test_threads_reset_their_own_scopes(replicas):
    strategy, models, errors = replicas(2), {}, []
    together = threading.Barrier(2)

    def work(name):
        try:
            with strategy.scope():
                together.wait(60)
                keras.utils.clear_session()
                together.wait(60)
                models[name] = tf.Variable(X)
                keras.utils.clear_session()
            assert_no_scope()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    with strategy.scope():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        model = build(keras.utils.clear_session)
    assert not errors
    assert all(len(variable.values) == 2 for variable in models.values())
    assert_all_have_copies(model, strategy)


def test_a_callback_may_reset_during_training(replicas, expected):
    resets = [
        keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: keras.utils.clear_session(),
            on_epoch_end=lambda epoch, logs: keras.utils.clear_session(),
        )
    ]
    with replicas(2).scope():
        model = build()
        for one, many in zip(expected, trained(model, resets), strict=True):
            np.testing.assert_allclose(many, one, atol=1e-6)


def test_other_strategies_are_not_touched(replicas):
    replicas(2)
    stock = tf.distribute.MirroredStrategy(device_names(2))
    scope = stock.scope()
    scope.__enter__()
    keras.utils.clear_session()
    assert not tf.distribute.has_strategy()
