"""Hooks of callbacks around a training step, of any model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import _keras
from kerasmgpu._keras import step_hooks
from tests.devices import device_names

ROWS = np.ones((8, 3), "float32")


class Recorder(step_hooks.StepHook):
    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def around(self, run, iterator):
        self.calls.append(self.name)
        return super().around(run, iterator)

    def on_removed(self):
        self.calls.append(f"end of {self.name}")


class Adds(keras.callbacks.Callback):
    def __init__(self, *added, **settings):
        super().__init__()
        _keras.install()
        self.added, self.settings = added, settings

    def on_train_begin(self, logs=None):
        for hook in self.added:
            step_hooks.add(self.model, hook, **self.settings)


def compiled():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def fit(model, *callbacks):
    data = tf.data.Dataset.from_tensor_slices((ROWS, ROWS[:, :1])).batch(4)
    return model.fit(data, verbose=0, callbacks=list(callbacks))


@pytest.mark.parametrize("ours", [True, False])
def test_hooks_are_nested_and_removed_after_fit(ours):
    strategy = kerasmgpu.MirroredStrategy(device_names(2))
    with (strategy if ours else tf.distribute.get_strategy()).scope():
        model = compiled()
    fit(model)
    function, calls = model.train_function, []
    inner, *others = (Recorder(name, calls) for name in "abc")
    fit(model, Adds(*others), Adds(inner, innermost=True))
    assert calls == ["c", "b", "a"] * 2 + ["end of c", "end of b", "end of a"]
    assert model.train_function is function


def test_hooks_are_removed_if_fit_raises_and_a_nested_fit_keeps_them():
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            fit(self.model, Adds(Recorder("nested", calls)))
            raise KeyboardInterrupt

    model, calls = compiled(), []
    with pytest.raises(KeyboardInterrupt):
        fit(model, Adds(Recorder("outer", calls)), Interrupt())
    nested = ["nested", "outer"] * 2 + ["end of nested"]
    assert calls == ["outer"] * 2 + nested + ["end of outer"]
    assert not isinstance(model.train_function, step_hooks.HookedSteps)


def test_a_hook_may_remove_itself_and_remake_the_function():
    class Once(step_hooks.StepHook):
        def around(self, run, iterator):
            made.append(step_hooks.remake(model))
            step_hooks.remove(model, self)
            return run(iterator)

    model, made, calls = compiled(), [], []
    fit(model, Adds(Recorder("stays", calls)), Adds(Once(), innermost=True))
    assert calls == ["stays"] * 2 + ["end of stays"]
    assert len(made) == 1 and model.train_function is made[0]
