"""Steps compute the results of metrics only where somebody looks at them."""

from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu._keras.steps import Steps
from kerasmgpu.job import workers


class Reader(keras.callbacks.Callback):
    """Keeps what a hook for batches is shown."""

    def __init__(self):
        super().__init__()
        self.logs, self.test_logs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append(dict(logs))

    def on_test_batch_end(self, batch, logs=None):
        self.test_logs.append(dict(logs))


class Clock(Reader):
    reads_batch_logs = False


class OwnStep(keras.Model):
    """Logs something that is no metric."""

    def train_step(self, data):
        return {**super().train_step(data), "seven": np.float32(7)}


X = np.random.default_rng(0).normal(size=(21, 4)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")


def build(strategy=None, kind=keras.Model, has_all_metrics=False):
    keras.utils.set_random_seed(1)

    def compiled():
        inputs = keras.Input((4,))
        model = kind(
            inputs, keras.layers.Dense(1, activation="sigmoid")(inputs)
        )
        metrics = ["mae"]
        if has_all_metrics:
            metrics.append(keras.metrics.AUC(name="auc"))
            metrics.append(keras.metrics.F1Score(threshold=0.5, name="f1"))
        model.compile("sgd", "binary_crossentropy", metrics=metrics)
        return model

    if strategy is None:
        return compiled()
    with strategy.scope():
        return compiled()


def fit(model, *callbacks, verbose=0, **arguments):
    returned, run = [], Steps.__call__

    def kept(steps, iterator):
        logs = run(steps, iterator)
        if steps._trains:
            returned.append({k: np.mean(v) for k, v in logs.items()})
        return logs

    with mock.patch.object(Steps, "__call__", kept):
        history = model.fit(
            X,
            Y,
            batch_size=8,
            epochs=2,
            shuffle=False,
            verbose=verbose,
            callbacks=list(callbacks),
            **arguments,
        ).history
    return history, returned


def are_left_out(logs):
    missing = {bool(np.isnan(v)) for step in logs for v in step.values()}
    (all_missing,) = missing  # Never some of them.
    return all_missing


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)


@pytest.fixture(scope="module")
def one_device():
    """What a hook is shown on one device, and the history."""
    reader = Reader()
    model = build(has_all_metrics=True)
    return reader, fit(model, reader, validation_data=(X, Y))[0]


@pytest.fixture(scope="module")
def unread(replicas):
    """A model whose logs no callback has read."""
    return build(replicas(2))


def test_nobody_looks(replicas, one_device):
    model = build(replicas(3), has_all_metrics=True)
    found, logs = fit(model, validation_data=(X, Y))
    assert len(logs) == 6 and are_left_out(logs)
    assert_equal(found, one_device[1])


def test_a_hook_for_batches_is_shown_results(replicas, one_device):
    found, expected = Reader(), one_device[0]
    model = build(replicas(2), has_all_metrics=True)
    fit(model, found, validation_data=(X, Y))
    for name in ("logs", "test_logs"):
        steps = getattr(found, name), getattr(expected, name)
        assert len(steps[1]) == 6
        for pair in zip(*steps, strict=True):
            assert_equal(*pair)


@pytest.mark.parametrize(
    "callback, looks",
    [
        (lambda _: Clock(), False),
        (lambda p: keras.callbacks.ModelCheckpoint(p / "a.keras"), False),
        (lambda p: keras.callbacks.BackupAndRestore(p), False),
        (lambda p: keras.callbacks.ModelCheckpoint(p / "a.keras", "loss",
                                                   save_freq=9), True),
        (lambda _: keras.callbacks.TerminateOnNaN(), True),
        (lambda _: keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: None), True),
        (lambda _: kerasmgpu.callbacks.ThroughputLogger(), False),
        (lambda _: kerasmgpu.callbacks.Progress(), False),
    ],
)  # fmt: skip
def test_who_looks(replicas, tmp_path, callback, looks, unread):
    model = build(replicas(2)) if looks else unread
    _, logs = fit(model, callback(tmp_path))
    assert are_left_out(logs) != looks


@pytest.mark.parametrize("verbose, looks", [(1, True), (2, False)])
def test_the_progress_bar_looks(replicas, verbose, looks, unread):
    model = build(replicas(2)) if looks else unread
    _, logs = fit(model, verbose=verbose)
    assert are_left_out(logs) != looks


def test_a_step_with_results_is_not_traced_again_without(replicas):
    model = build(replicas(2))
    fit(model, Reader())
    _, logs = fit(model)
    assert not are_left_out(logs)


@pytest.mark.slow
def test_results_come_back_when_somebody_looks(replicas):
    model, one_device = build(replicas(2)), build()
    fit(model), fit(one_device)
    found, expected = Reader(), Reader()
    fit(model, found), fit(one_device, expected)
    assert_equal(found.logs[-1], expected.logs[-1])


def test_logs_that_are_no_metrics_keep_all_others(replicas):
    _, logs = fit(build(replicas(2), OwnStep))
    assert {step["seven"] for step in logs} == {7.0}
    assert not are_left_out(logs)


@pytest.mark.slow
def test_outside_of_fit_all_look(replicas):
    model, one_device = (
        build(strategy, has_all_metrics=True)
        for strategy in (replicas(2), None)
    )
    fit(model), fit(one_device)
    assert_equal(
        model.train_on_batch(X, Y, return_dict=True),
        one_device.train_on_batch(X, Y, return_dict=True),
    )
    assert_equal(
        model.evaluate(X, Y, verbose=0, return_dict=True),
        one_device.evaluate(X, Y, verbose=0, return_dict=True),
    )


def test_callbacks_of_a_loop_by_hand_change_nothing(replicas):
    model = build(replicas(2))
    fit(model)
    callbacks = keras.callbacks.CallbackList([], model=model)
    callbacks.on_train_begin()
    dataset = tf.data.Dataset.from_tensors((X, Y))
    logs = model.train_function(iter(dataset))
    assert np.isfinite(logs["loss"])


def test_models_of_others_ask_nobody(monkeypatch):
    monkeypatch.delattr(workers, "any_of")
    build().fit(X, Y, verbose=0)


def test_one_worker_that_looks_is_enough(replicas, monkeypatch):
    monkeypatch.setattr(workers, "any_of", lambda strategy, flag: True)
    _, logs = fit(build(replicas(2)))
    assert not are_left_out(logs)


class OwnLoop(keras.Model):
    """Puts a function of its own between Keras and the step."""

    seen = ()

    def make_train_function(self, force=False):
        super().make_train_function(force)
        if not self.seen:
            self.seen, step = [], self.train_function

            def noted(iterator):
                logs = step(iterator)
                self.seen.append(float(logs["loss"]))
                return logs

            self.train_function = noted


class MoreSteps(keras.callbacks.Callback):
    """Runs a step of its own behind each epoch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        dataset = tf.data.Dataset.from_tensors((X, Y))
        logs = self.model.train_function(iter(dataset))
        self.seen.append(float(logs["loss"]))


class LaterHook(MoreSteps):
    """Begins to look at single steps in the second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.on_train_batch_end = lambda batch, logs: self.seen.append(
                logs["loss"]
            )

    def on_epoch_end(self, epoch, logs=None):
        pass


def of_the_loop():
    model = build(kind=OwnLoop)
    model.fit(X, Y, batch_size=8, verbose=0)
    return model.seen


def of_a_callback(kind):
    def run():
        callback = kind()
        build().fit(
            X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[callback]
        )
        return callback.seen

    return run


def of_a_list():
    seen = []

    class Callbacks(keras.callbacks.CallbackList):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(float(logs["loss"]))
            super().on_train_batch_end(batch, logs)

    model = build()
    callbacks = Callbacks([], model=model, add_history=True, epochs=1, steps=3)
    model.fit(X, Y, batch_size=8, verbose=0, callbacks=callbacks)
    return seen


@pytest.mark.nightly(but=1)
@pytest.mark.parametrize(
    "losses",
    [
        of_the_loop,
        of_a_callback(MoreSteps),
        of_a_callback(LaterHook),
        of_a_list,
    ],
)
def test_who_looks_in_another_way_is_shown_results(replicas, losses):
    expected = losses()
    with replicas(2).scope():
        found = losses()
    assert len(found) >= 2
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_models_of_others_in_a_callback_ask_nobody(replicas, monkeypatch):
    """One that only the first worker runs would wait for the others for ever."""
    asked = []
    monkeypatch.setattr(
        workers, "any_of", lambda strategy, flag: asked.append(flag) or flag
    )

    class Other(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            before, other = len(asked), build()
            other.predict(X, verbose=0)
            other.fit(X, Y, verbose=0)
            other.evaluate(X, Y, verbose=0)
            assert len(asked) == before

    fit(build(replicas(2)), Other())
    assert asked
