"""A callback of another tool writes once, whatever the number of workers."""

import keras
import pytest
import tensorflow as tf

import kerasmgpu
from kerasmgpu import callbacks
from kerasmgpu.job.cluster import Worker


class Tracker(keras.callbacks.Callback):
    """Notes what it is called with, as a service's callback sends it."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def on_train_begin(self, logs=None):
        self.heard.append(("begin", self.params["epochs"], self.model.name))

    def on_epoch_end(self, epoch, logs=None):
        self.heard.append((epoch, sorted(logs)))


class StepTracker(Tracker):
    def on_train_batch_end(self, batch, logs=None):
        self.heard.append(logs["loss"])


def fit(callback, strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(
        tf.ones((4, 2)),
        tf.ones((4, 1)),
        epochs=2,
        verbose=0,
        callbacks=[callbacks.OnFirstWorker(callback)],
    )


def be_worker(monkeypatch, index):
    worker = Worker(["a:1", "b:1"], index)
    monkeypatch.setenv("TF_CONFIG", worker.tf_config())


def test_without_a_job_it_is_called(replicas):
    tracker = Tracker()
    fit(tracker, replicas(2))
    assert tracker.heard[0][:2] == ("begin", 2)
    assert tracker.heard[1:] == [(0, ["loss"]), (1, ["loss"])]
    assert kerasmgpu.is_first_worker()


@pytest.mark.parametrize("index, is_called", [(0, True), (1, False)])
def test_only_the_first_worker_makes_and_calls_it(
    replicas, monkeypatch, index, is_called
):
    strategy = replicas(2)
    be_worker(monkeypatch, index)
    tracker, made = Tracker(), []

    def make():
        made.append(Tracker())
        return made[-1]

    for callback in (tracker, make):
        fit(callback, strategy)
    assert bool(tracker.heard) == is_called == kerasmgpu.is_first_worker()
    assert [len(one.heard) for one in made] == [3] * is_called


def test_steps_are_looked_at_only_if_the_callback_does(replicas):
    assert not callbacks.OnFirstWorker(Tracker()).reads_batch_logs
    tracker = StepTracker()
    assert callbacks.OnFirstWorker(tracker).reads_batch_logs
    fit(tracker, replicas(2))
    losses = [heard for heard in tracker.heard if isinstance(heard, float)]
    assert len(losses) == 2 and losses[1] < losses[0]


@pytest.mark.parametrize("other", ["wandb", lambda: "wandb"])
def test_anything_else_is_refused(other):
    with pytest.raises(kerasmgpu.InputError, match="Received: 'wandb'"):
        callbacks.OnFirstWorker(other)


def test_what_saves_the_model_is_refused(tmp_path):
    saving = keras.callbacks.ModelCheckpoint(tmp_path / "model.keras")
    with pytest.raises(kerasmgpu.InputError, match="pass it to fit directly"):
        callbacks.OnFirstWorker(saving)


@pytest.mark.parametrize(
    "name", ["DeviceStats", "HangWatch", "NotFinite", "Progress", "RunRecord"]
)
def test_callbacks_that_all_workers_run_are_refused(name, tmp_path):
    kind = getattr(kerasmgpu.callbacks, name)
    callback = kind(tmp_path) if name == "RunRecord" else kind()
    with pytest.raises(
        kerasmgpu.InputError, match=f"^{name} needs all workers"
    ):
        kerasmgpu.callbacks.OnFirstWorker(callback)
