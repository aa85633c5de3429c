"""Warm-up, alone, in a model, and through a file."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.schedules import WarmUp

Cosine = keras.optimizers.schedules.CosineDecay
Steps = keras.optimizers.schedules.PiecewiseConstantDecay


def test_rises_in_equal_amounts_to_a_constant():
    # Goyal et al.: 0.1 to 3.2; the steps in between worked out by hand.
    schedule = WarmUp(3.2, warmup_steps=10, initial_learning_rate=0.1)
    got = [float(schedule(step)) for step in (0, 1, 5, 9, 10, 11, 10**6)]
    np.testing.assert_allclose(
        got, [0.1, 0.41, 1.65, 2.89, 3.2, 3.2, 3.2], rtol=1e-6
    )


def test_ends_are_exact():
    schedule = WarmUp(3.2, warmup_steps=7, initial_learning_rate=0.1)
    assert schedule(0).numpy() == np.float32(0.1)
    assert schedule(7).numpy() == np.float32(3.2)
    assert WarmUp(3.2, warmup_steps=7)(0).numpy() == 0


def test_milestones_of_the_wrapped_schedule_stay_where_they_were():
    drops = Steps([30, 60], [3.0, 0.3, 0.03])
    schedule = WarmUp(drops, warmup_steps=10)
    for step in (10, 29, 30, 31, 60, 61, 1000):
        assert schedule(step).numpy() == drops(step).numpy()


def test_meets_a_decay_without_a_jump():
    decay = Cosine(1.0, decay_steps=100)
    schedule = WarmUp(decay, warmup_steps=20)
    target = 0.5 * (1 + np.cos(np.pi * 20 / 100))  # The decay at step 20.
    np.testing.assert_allclose(schedule(10), target / 2, rtol=1e-6)
    np.testing.assert_allclose(schedule(19), target * 0.95, rtol=1e-6)
    np.testing.assert_allclose(schedule(20), target, rtol=1e-6)
    np.testing.assert_allclose(schedule(100), 0.0, atol=1e-7)


def test_no_warm_up_is_the_wrapped_schedule():
    assert WarmUp(0.5, warmup_steps=0)(0).numpy() == 0.5


@pytest.mark.parametrize("dtype", [tf.int64, tf.int32, tf.float32])
@pytest.mark.parametrize("compiled", [False, True])
def test_is_a_tensor_function(dtype, compiled):
    traces = []
    schedule = WarmUp(Cosine(1.0, 100), 4, initial_learning_rate=0.25)

    @tf.function(jit_compile=compiled)
    def rate(step):
        traces.append(step)
        return schedule(step)

    for step in (0, 3, 4, 50):
        np.testing.assert_allclose(
            rate(tf.constant(step, dtype)), float(schedule(step)), rtol=1e-6
        )
    assert len(traces) == 1


def test_config_round_trip():
    schedule = WarmUp(
        Cosine(1.0, decay_steps=50, alpha=0.1),
        warmup_steps=5,
        initial_learning_rate=0.2,
        name="ramp",
    )
    config = keras.saving.serialize_keras_object(schedule)
    again = keras.saving.deserialize_keras_object(config)
    assert isinstance(again, WarmUp)
    assert again.get_config() == schedule.get_config()
    for step in range(0, 60, 3):
        assert again(step).numpy() == schedule(step).numpy()


def test_saved_and_loaded_in_a_compiled_model(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    schedule = WarmUp(Cosine(0.5, 40), warmup_steps=8)
    model.compile(keras.optimizers.SGD(schedule), loss="mse")
    features = np.ones((12, 2), "float32")
    model.fit(features, features[:, :1], batch_size=4, verbose=0)
    model.save(tmp_path / "model.keras")

    loaded = keras.saving.load_model(tmp_path / "model.keras")
    # Three updates were made: three eighths of the way up.
    target = 0.25 * (1 + np.cos(np.pi * 8 / 40))
    for optimizer in (model.optimizer, loaded.optimizer):
        assert int(optimizer.iterations) == 3
        np.testing.assert_allclose(
            float(optimizer.learning_rate), target * 3 / 8, rtol=1e-6
        )
    model.fit(features, features[:, :1], batch_size=4, verbose=0)
    loaded.fit(features, features[:, :1], batch_size=4, verbose=0)
    for a, b in zip(model.get_weights(), loaded.get_weights()):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_updates_use_the_rising_rate():
    # d(loss)/dw = 1 for the loss w, so w falls by the rates: 0, 1/4, 2/4, ...
    optimizer = keras.optimizers.SGD(WarmUp(1.0, warmup_steps=4))
    weight = keras.Variable(0.0)
    seen = []
    for _ in range(6):
        optimizer.apply([tf.constant(1.0)], [weight])
        seen.append(-float(weight))
    assert seen == [0, 0.25, 0.75, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("bad", [-1, 2.5, "10", None, True, float("nan")])
def test_bad_warmup_steps(bad):
    with pytest.raises(InputError, match="^warmup_steps must be an integer"):
        WarmUp(0.1, warmup_steps=bad)


@pytest.mark.parametrize("bad", [0, -0.1, float("nan"), "0.1", None, max])
def test_bad_learning_rate(bad):
    with pytest.raises(InputError, match="^learning_rate must be a finite"):
        WarmUp(bad, warmup_steps=10)


@pytest.mark.parametrize("bad", [-0.1, float("inf"), "0", None])
def test_bad_initial_learning_rate(bad):
    with pytest.raises(InputError, match="^initial_learning_rate must be"):
        WarmUp(0.1, warmup_steps=10, initial_learning_rate=bad)
