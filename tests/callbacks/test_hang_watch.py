"""HangWatch says where training stands, and leaves it alone."""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.callbacks import HangWatch, ThroughputLogger
from kerasmgpu.errors import InputError

ROWS, BATCH = 16, 4
LIMIT, PAUSE = 2.0, 10.0  # Seconds: a busy machine may stand still for some.


class Pause:
    """Pauses once, when it is told to, in whichever place calls it."""

    def __init__(self):
        self.is_due = False

    def here(self):
        if self.is_due:
            self.is_due = False
            time.sleep(PAUSE)


class Users(keras.callbacks.Callback):
    """Tells a pause to come in epoch 2, and may pause by itself."""

    def __init__(self, pause, pauses=False):
        super().__init__()
        self._pause, self._pauses = pause, pauses

    def on_epoch_begin(self, epoch, logs=None):
        self._pause.is_due = epoch == 1

    def on_epoch_end(self, epoch, logs=None):
        if self._pauses:
            self._pause.here()


def data_of(pause=None):
    def rows():
        for _ in range(ROWS):
            if pause is not None:
                pause.here()
            yield np.ones([3], "float32"), np.ones([1], "float32")

    signature = tf.TensorSpec([3]), tf.TensorSpec([1])
    return tf.data.Dataset.from_generator(
        rows, output_signature=signature
    ).batch(BATCH)


def model_of(strategy, pause, in_test=False):
    class Pausing(keras.layers.Layer):
        def call(self, x, training=None):
            if bool(training) == in_test:
                return x

            def paused(number):
                pause.here()
                return number

            mean = tf.reduce_mean(tf.stop_gradient(x))
            number = tf.numpy_function(paused, [mean], tf.float32)
            number.set_shape([])
            return x + 0 * number

    with strategy.scope():
        layers = [keras.layers.Dense(2), Pausing(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile("sgd", "mse", jit_compile=False)
    return model


def said_of(caplog):
    texts = [record.getMessage() for record in caplog.records]
    return [text for text in texts if "made no progress" in text]


@pytest.mark.parametrize(
    "place",
    [
        "callback",
        pytest.param("input", marks=pytest.mark.slow),
        pytest.param("step", marks=pytest.mark.slow),
        pytest.param("validation", marks=pytest.mark.slow),
    ],
)
def test_the_place_is_named_once(replicas, caplog, tmp_path, place):
    pause, path = Pause(), tmp_path / "hangs.txt"
    in_model = place in ("step", "validation")
    model = model_of(
        replicas(2),
        pause if in_model else Pause(),
        in_test=place == "validation",
    )
    x = np.ones([ROWS, 3])
    model.fit(
        data_of(pause if place == "input" else None),
        epochs=3,
        verbose=0,
        validation_data=(x, x[:, :1]),
        callbacks=[
            HangWatch(LIMIT, path),
            ThroughputLogger(),
            Users(pause, pauses=place == "callback"),
        ],
    )
    words = {
        "input": "Worker 0 is waiting for input since",
        "step": "Worker 0 is in step 1 of epoch 2 since",
        "callback": "Worker 0 is in callback Users.on_epoch_end of epoch 2 since",
        "validation": "Worker 0 is in step 1 of the validation of epoch 2 since",
    }[place]
    (text,) = [text for text in said_of(caplog) if words in text]
    assert "all_reduce of" in text
    # The stacks are in the file, the program's own lines at the end.
    assert ", in here\n" not in text
    assert f"stacks of all threads: {path}\n" in text
    assert "line" in text.splitlines()[-1]
    assert "test_hang_watch.py, line" in text.partition("own lines")[2]
    assert "time.sleep(PAUSE)" in text.partition("own lines")[2]
    kept = path.read_text()
    assert text.splitlines()[0] in kept
    assert ", in here\n" in kept
    assert "kerasmgpu: devices:\nthis process: " in kept


def test_stacks_without_a_file_are_logged(replicas, caplog):
    pause = Pause()
    model = model_of(replicas(1), Pause())
    model.fit(
        data_of(),
        epochs=3,
        verbose=0,
        callbacks=[HangWatch(LIMIT), Users(pause, pauses=True)],
    )
    (text,) = [t for t in said_of(caplog) if "Users.on_epoch_end" in t]
    assert ", in here\n" in text.partition("own lines")[0]


@pytest.mark.slow
def test_tracing_and_progress_in_validation_are_no_hangs(replicas, caplog):
    class Traced(keras.layers.Layer):
        def call(self, x):
            if not tf.executing_eagerly():
                time.sleep(5)
            return x

    def slow(x, y):
        waited = tf.py_function(lambda: time.sleep(0.3) or 0.0, [], "float32")
        with tf.control_dependencies([waited]):
            return tf.identity(x), y

    with replicas(2).scope():
        layers = [Traced(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((3,)), *layers])
        model.compile("sgd", "mse")
    x = np.ones([ROWS, 3])
    validation = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2)
    model.fit(
        x,
        x[:, :1],
        epochs=2,
        verbose=0,
        validation_data=validation.map(slow),
        callbacks=[HangWatch(4.0)],
    )
    assert said_of(caplog) == []


def test_the_thread_ends_with_fit(replicas):
    def watchers():
        threads = threading.enumerate()
        return [t for t in threads if t.name == "kerasmgpu-hang-watch"]

    class Fails(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            assert len(watchers()) == 1
            raise RuntimeError("of the user's")

    model = model_of(replicas(1), Pause())
    with pytest.raises(RuntimeError, match="of the user's"):
        model.fit(
            data_of(), epochs=2, verbose=0, callbacks=[HangWatch(), Fails()]
        )
    end = time.monotonic() + 30
    while watchers():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("wrong", [0, -1, "soon", float("nan")])
def test_wrong_limits(wrong):
    with pytest.raises(InputError, match="hang_seconds"):
        HangWatch(wrong)
