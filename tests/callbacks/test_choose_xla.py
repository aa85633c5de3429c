"""Steps with and without XLA are measured, and the faster way stays."""

import keras
import numpy as np
import pytest

from kerasmgpu import callbacks
from kerasmgpu._keras.steps import Steps
from kerasmgpu.errors import InputError

ROWS = np.random.default_rng(0).normal(size=(96, 6)).astype("float32")


class Noting(keras.Model):
    """Notes with which setting each of its steps is traced."""

    traced = ()

    def train_step(self, data):
        self.traced = (*self.traced, self.jit_compile)
        return super().train_step(data)


def compiled(strategy, **settings):
    with strategy.scope():
        keras.utils.set_random_seed(0)
        inputs = keras.Input((6,))
        hidden = keras.layers.Dense(5, activation="tanh")(inputs)
        model = Noting(inputs, keras.layers.Dense(1)(hidden))
        model.compile("adam", "mse", **settings)
    return model


def fitted(strategy, added, epochs=1, **settings):
    model = compiled(strategy, **settings)
    model.fit(
        ROWS,
        ROWS[:, :1],
        batch_size=8,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=added,
    )
    return model


@pytest.fixture
def times(monkeypatch):
    """Gives the two kinds of steps the milliseconds that a test says."""

    def plant(without, with_xla):
        decide = callbacks.ChooseXla.decide

        def planted(self, seconds):
            assert {kind: len(own) for kind, own in seconds.items()} == {
                False: self.executions,
                True: self.executions,
            }
            return decide(
                self, {False: [without / 1e3] * 2, True: [with_xla / 1e3] * 2}
            )

        monkeypatch.setattr(callbacks.ChooseXla, "decide", planted)

    return plant


@pytest.mark.parametrize(
    "num_replicas, with_xla, expected", [(2, 8.0, True), (1, 9.9, False)]
)
def test_the_faster_stays(replicas, times, num_replicas, with_xla, expected):
    times(10.0, with_xla)
    strategy = replicas(num_replicas)
    model = fitted(strategy, [callbacks.ChooseXla(2)])
    assert model.jit_compile is expected
    assert set(model.traced) == {False, True}
    plain = fitted(strategy, [], jit_compile=False)
    for found, own in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(found, own, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [True, False])
def test_it_works_beside_the_throughput_logger(replicas, times, is_first):
    times(10.0, 8.0)
    choose, throughput = callbacks.ChooseXla(2), callbacks.ThroughputLogger()
    both = [choose, throughput] if is_first else [throughput, choose]
    model = fitted(replicas(2), both, epochs=3)
    assert model.jit_compile is True
    rates = model.history.history["examples_per_second"]
    assert len(rates) == 3 and rates[2] > 0
    traced = model.traced
    model.fit(ROWS, ROWS[:, :1], batch_size=8, verbose=0, callbacks=both)
    assert model.traced == traced  # Decided once; nothing is traced again.


def test_too_few_steps_leave_the_model_as_it_was(replicas):
    model = fitted(replicas(2), [callbacks.ChooseXla(200)])
    assert model.jit_compile is False
    traced = model.traced
    model.fit(ROWS, ROWS[:, :1], batch_size=8, verbose=0)
    assert model.traced == traced


def test_a_fit_that_was_interrupted_is_followed_by_a_whole_trial(
    replicas, times
):
    times(10.0, 8.0)

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:  # Without XLA, the second block, with it.
                raise KeyboardInterrupt

    model, choose = compiled(replicas(2)), callbacks.ChooseXla(2)
    data = dict(x=ROWS, y=ROWS[:, :1], batch_size=8, verbose=0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(**data, callbacks=[choose, Stop()])
    assert model.jit_compile is False  # As before the trial.
    model.fit(**data, callbacks=[choose])
    assert model.jit_compile is True and choose._decided is model
    assert isinstance(model.train_function, Steps)


def test_the_number_is_checked():
    with pytest.raises(InputError, match="executions"):
        callbacks.ChooseXla(0)
