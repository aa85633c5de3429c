"""Steps call their trace without a lookup, and the right one."""

import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu._keras.direct_calls import DirectCall


class Counted:
    """A `tf.function` that counts lookups."""

    def __init__(self, function):
        self._function = tf.function(function, reduce_retracing=True)
        self.lookups = 0

    def __call__(self, iterator):
        self.lookups += 1
        return self._function(iterator)

    def get_concrete_function(self, iterator):
        return self._function.get_concrete_function(iterator)


def iterator_of(values):
    return iter(tf.data.Dataset.from_tensor_slices(np.asarray(values)))


def test_one_lookup_per_iterator():
    function = Counted(lambda iterator: 2 * iterator.get_next())
    call = DirectCall(function)
    for values in ([1, 2, 3], [4, 5, 6], [0.5, 1.5, 2.5], [[7], [8], [9]]):
        iterator, function.lookups = iterator_of(values), 0
        found = [call(iterator).numpy().tolist() for _ in values]
        assert found == (2 * np.asarray(values)).tolist()
        assert function.lookups == 1
        with pytest.raises(tf.errors.OutOfRangeError):
            call(iterator)


def test_iterators_may_take_turns():
    call = DirectCall(tf.function(lambda iterator: iterator.get_next()))
    whole, half = iterator_of([1, 2]), iterator_of([0.5, 1.5])
    found = [call(each).numpy() for each in (whole, half, half, whole)]
    assert found == [1, 0.5, 1.5, 2]


def test_functions_may_be_made_eager():
    seen = []

    def step(iterator):
        seen.append(tf.executing_eagerly())
        return iterator.get_next()

    call, iterator = DirectCall(tf.function(step)), iterator_of([1, 2, 3])
    call(iterator)
    tf.config.run_functions_eagerly(True)
    try:
        call(iterator)
    finally:
        tf.config.run_functions_eagerly(False)
    call(iterator)
    assert seen == [False, True]


def test_the_iterator_is_not_kept():
    call = DirectCall(tf.function(lambda iterator: iterator.get_next()))
    iterator = iterator_of([1])
    call(iterator)
    kept = weakref.ref(iterator)
    del iterator
    assert kept() is None


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_steps_of_keras_are_called_directly(
    replicas, num_replicas, steps_per_execution, monkeypatch
):
    calls = []
    original = DirectCall.__call__

    def counted(self, iterator):
        calls.append(self._iterator() is iterator)
        return original(self, iterator)

    monkeypatch.setattr(DirectCall, "__call__", counted)
    with replicas(num_replicas).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
    x = np.ones((24, 2), "float32")
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0)
    per_epoch = 6 // steps_per_execution
    assert calls == 2 * [False, *[True] * (per_epoch - 1)]
    calls.clear()
    model.evaluate(x, x[:, :1], batch_size=4, verbose=0)
    assert calls == [False, *[True] * (per_epoch - 1)]
