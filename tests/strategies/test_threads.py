"""Models of one strategy train, and predict, in threads.

Pauses are planted where threads share something: without the locks of
`partitioner/runtime/making.py`, runs differ, or meet, every time.
"""

import functools
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops

import kerasmgpu
from kerasmgpu.partitioner.runtime import (
    function,
    one_device,
    program,
    written,
)
from tests.devices import device_names

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(13, 6)).astype("float32")
Y = np.sin(X[:, :1])


def strategy(shard):
    return kerasmgpu.MirroredStrategy(
        device_names(3), shard=shard, min_shard_bytes=0
    )


def model_of(chosen, units, seed, **compiled):
    keras.utils.set_random_seed(seed)
    with chosen.scope():
        model = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(units, "tanh"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.Adam(0.1), "mse", **compiled)
    return model


def fit(model):
    model.fit(X, Y, batch_size=5, epochs=2, shuffle=False, verbose=0)
    return model.get_weights()


def predict(model):
    return [model.predict(X, batch_size=5, verbose=0)]


def in_threads(*tasks):
    """Results of functions that run at the same time."""
    results, barrier = [None] * len(tasks), threading.Barrier(len(tasks))

    def work(number, task):
        barrier.wait(30)
        try:
            results[number] = task()
        except BaseException as error:  # noqa: B036  (raised below)
            results[number] = error

    threads = [
        threading.Thread(target=work, args=each, daemon=True)
        for each in enumerate(tasks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


class Meetings:
    """Plants a pause in functions, and notes threads that meet in them."""

    def __init__(self, monkeypatch):
        self._patch = monkeypatch.setattr
        self._inside = set()
        self.met, self.visits = [], set()

    def plant(self, owner, name, seconds=0.02):
        original = getattr(owner, name)

        @functools.wraps(original)
        def paused(*args, **kwargs):
            me = threading.get_ident()
            self.visits.add(name)
            if self._inside - {me}:
                self.met.append(name)
            is_outer = me not in self._inside
            self._inside.add(me)
            try:
                time.sleep(seconds)
                made = original(*args, **kwargs)
                time.sleep(seconds)
                return made
            finally:
                if is_outer:
                    self._inside.discard(me)

        self._patch(owner, name, paused)


PLACES = [
    (function.Partitioned, "_trace"),
    (program.Program, "_plan"),
    (program.Program, "emitted"),
    (program.Program, "added"),
    (written.Written, "fed"),
    (one_device.OneDevice, "_create_sharded"),
    (one_device.OneDevice, "_by_number"),
]
"""Where state of the process, or of the strategy, is changed."""


@pytest.mark.parametrize(
    "shard, units",
    [
        pytest.param("weights", (5, 7), id="divided-unlike"),
        pytest.param(None, (5, 5), id="equal", marks=pytest.mark.nightly),
        pytest.param(None, (5, 7), id="unlike", marks=pytest.mark.slow),
        pytest.param(
            "weights", (5, 5), id="divided-equal", marks=pytest.mark.slow
        ),
    ],
)
def test_two_fits_and_two_predicts(monkeypatch, shard, units):
    chosen = strategy(shard)
    alone = [model_of(chosen, u, n) for n, u in enumerate((*units, 9))]
    wanted = [fit(alone[0]), fit(alone[1]), predict(alone[2])]
    models = [model_of(chosen, u, n) for n, u in enumerate((*units, 9))]
    meetings = Meetings(monkeypatch)
    for owner, name in PLACES:
        meetings.plant(owner, name, 0.05 if name == "_trace" else 0.002)
    first, second, *predicted = in_threads(
        functools.partial(fit, models[0]),
        functools.partial(fit, models[1]),
        functools.partial(predict, models[2]),
        functools.partial(predict, models[2]),
    )
    assert meetings.met == []
    assert {"_trace", "_plan", "emitted", "added", "fed"} <= meetings.visits
    for got, expected in zip(
        (first, second, *predicted), (*wanted[:2], wanted[2], wanted[2])
    ):
        for one, other in zip(got, expected):
            np.testing.assert_array_equal(one, other)


def test_runs_of_one_function_keep_their_tensors_apart():
    """What devices send each other stays in its run, also without an iterator."""
    chosen = strategy(None)
    with chosen.scope():
        inputs = keras.Input((4,))
        model = keras.Model(inputs, inputs + 1.0)
    model.predict_on_batch(np.zeros((6, 4)))

    def predict_often(number):
        for step in range(150):
            batch = np.full((6, 4), 1000.0 * number + step)
            np.testing.assert_array_equal(
                model.predict_on_batch(batch), batch + 1
            )

    in_threads(*[functools.partial(predict_often, n) for n in range(4)])


def test_runs_with_collectives_come_one_after_the_other(like_gpus):
    """Their keys are the same in each run."""
    chosen = like_gpus(2)
    with chosen.scope():
        inputs = keras.Input((4,))
        mean = keras.ops.mean(inputs, 0, keepdims=True)
        model = keras.Model(inputs, inputs - mean)
    batches = [np.eye(6, 4, -n) * (n + 1) for n in range(4)]
    wanted = [model.predict_on_batch(batch) for batch in batches]

    def predict_often(number):
        for _ in range(30):
            np.testing.assert_allclose(
                model.predict_on_batch(batches[number]), wanted[number]
            )

    in_threads(*[functools.partial(predict_often, n) for n in range(4)])


def test_iterators_of_devices_are_made_one_at_a_time(monkeypatch):
    chosen = strategy(None)
    batches = [
        chosen.experimental_distribute_dataset(
            tf.data.Dataset.from_tensors(np.full(6, number))
        )
        for number in range(2)
    ]
    meetings = Meetings(monkeypatch)
    meetings.plant(multi_device_iterator_ops, "_create_device_dataset")
    shares = in_threads(
        *[lambda some=some: next(iter(some)) for some in batches]
    )
    assert meetings.met == []
    assert meetings.visits == {"_create_device_dataset"}
    for number, share in enumerate(shares):
        for part in chosen.experimental_local_results(share):
            np.testing.assert_array_equal(part, [number, number])


@pytest.mark.slow
def test_steps_of_two_threads_run_side_by_side(monkeypatch):
    """What is made takes no lock: both threads are in a step at once."""
    chosen = strategy("weights")
    models = [model_of(chosen, 5, n) for n in range(2)]
    for model in models:
        fit(model)  # Makes the programs.
    together = threading.Barrier(2)
    enter = written.without_grappler.__enter__

    def meet(self):
        together.wait(30)
        enter(self)

    monkeypatch.setattr(written.without_grappler, "__enter__", meet)
    in_threads(*(functools.partial(fit, model) for model in models))


class Slow(keras.Sequential):
    """Waits in its first eager step until the other thread is done, or 1 s."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.began, self.other_is_done = threading.Event(), threading.Event()

    def train_step(self, data):
        logs = super().train_step(data)
        if not self.began.is_set():
            self.began.set()
            self.other_is_done.wait(1)
        return logs


@pytest.mark.slow
def test_an_eager_run_undoes_no_step_of_another_thread():
    """It copies all variables of the strategy to the replicas at its end."""
    chosen = strategy("weights")
    alone = model_of(chosen, 5, 0)
    fit(alone)
    wanted = fit(alone)
    model = model_of(chosen, 5, 0)
    fit(model)  # Makes the program, so that its steps take no time.
    with chosen.scope():
        eager = Slow([keras.Input((6,)), keras.layers.Dense(1)])
        eager.compile("sgd", "mse", run_eagerly=True)

    def meanwhile():
        assert eager.began.wait(60)
        weights = fit(model)
        eager.other_is_done.set()
        return weights

    got, _ = in_threads(meanwhile, functools.partial(fit, eager))
    for one, other in zip(model.get_weights(), wanted):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(got, wanted):
        np.testing.assert_array_equal(one, other)
