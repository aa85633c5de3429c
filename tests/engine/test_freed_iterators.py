"""Nobody waits for an iterator that is no longer read."""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.engine import freed_iterators, pipelines

SECONDS = 0.5


def slow_to_free():
    """An iterator that is free when its pipeline has slept enough."""

    def sleep(value):
        time.sleep(SECONDS)
        return value

    dataset = tf.data.Dataset.range(9).map(
        lambda value: tf.numpy_function(sleep, [value], tf.int64)
    )
    iterator = iter(dataset.prefetch(1))
    next(iterator)  # Now the pipeline sleeps over the next element.
    time.sleep(SECONDS / 10)
    return iterator


def threads():
    return [t for t in threading.enumerate() if t.name == freed_iterators.NAME]


def seconds_to_let_go(holder):
    start = time.perf_counter()
    holder.clear()
    return time.perf_counter() - start


def test_freeing_waits_without_it():
    assert seconds_to_let_go([slow_to_free()]) > SECONDS / 2


def test_freeing_waits_in_a_thread_of_its_own():
    holder = [slow_to_free()]
    others = threads()  # Those of earlier tests.
    freed_iterators.free(holder[0])
    assert not set(threads()) - set(others)
    start = time.perf_counter()
    assert seconds_to_let_go(holder) < SECONDS / 2
    (thread,) = set(threads()) - set(others)
    thread.join(20 * SECONDS)
    assert not thread.is_alive()
    assert time.perf_counter() - start > SECONDS / 2


class SlowResource:
    def __del__(self):
        time.sleep(SECONDS)


def test_resources_of_an_iterator_are_freed_at_the_same_time():
    """Those of 16 devices, one after the other, held an exit for minutes."""
    others = set(threads())
    start = time.perf_counter()
    freed_iterators._start([SlowResource() for _ in range(6)])
    for thread in set(threads()) - others:
        thread.join()
    assert SECONDS < time.perf_counter() - start < 3 * SECONDS


@pytest.mark.parametrize("is_in_a_cycle", [True, False])
def test_those_that_run_python_are_freed_before_the_interpreter_ends(
    is_in_a_cycle,
):
    """Also those that somebody holds, as a traceback does."""
    holder = [slow_to_free()]
    freed_iterators.free_before_exit(holder[0])
    kept = None if is_in_a_cycle else holder[0]
    holder.append(holder)
    del holder
    start = time.perf_counter()
    freed_iterators._free_that_run_python()
    assert time.perf_counter() - start > SECONDS / 2
    assert kept is None or not vars(kept)


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda data: data.shuffle(9).map(lambda v: v + 1).cache(), False),
        (
            lambda data: data.map(
                lambda v: tf.numpy_function(np.square, [v], tf.int64)
            ).batch(2),
            True,
        ),
        (
            lambda data: data.interleave(
                lambda v: tf.data.Dataset.range(v).map(
                    lambda w: tf.py_function(int, [w], tf.int64)
                )
            ),
            True,
        ),
        (
            lambda data: tf.data.Dataset.from_generator(
                lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int64)
            ),
            True,
        ),
        (lambda data: object(), True),
    ],
)
def test_who_runs_python(make, expected):
    assert pipelines.runs_python(make(tf.data.Dataset.range(9))) is expected


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize("steps_per_epoch, num_iterators", [(None, 3), (2, 1)])
def test_those_of_fit_are(
    replicas, monkeypatch, num_replicas, steps_per_epoch, num_iterators
):
    freed, freed_before_exit = [], []
    monkeypatch.setattr(freed_iterators, "free", freed.append)
    monkeypatch.setattr(
        freed_iterators, "free_before_exit", freed_before_exit.append
    )
    with replicas(num_replicas).scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones((12, 2), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(4)
    if steps_per_epoch:
        dataset = dataset.repeat()
    model.fit(dataset, epochs=3, steps_per_epoch=steps_per_epoch, verbose=0)
    assert len(freed) == num_iterators
    with_python = dataset.map(
        lambda x, y: (x, tf.ensure_shape(
            tf.numpy_function(np.square, [y], tf.float32), y.shape
        ))
    )  # fmt: skip
    assert not freed_before_exit
    model.fit(with_python, steps_per_epoch=2, verbose=0)
    assert len(freed) == num_iterators
    assert len(freed_before_exit) == 1
