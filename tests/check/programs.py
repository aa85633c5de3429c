"""Programs to check: a sound one, and ones with a fault in one stage."""

import os
import pathlib
import signal
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import kerasmgpu

X = np.random.default_rng(1).normal(size=(53, 6)).astype("float32")


def data():
    return X, X.sum(axis=1, keepdims=True)


def net(*hidden, **compile_args):
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8, "tanh"), *hidden, layers.Dense(1)]
    )
    model.compile(**{"optimizer": "adam", "loss": "mse", **compile_args})
    return model


def sound():
    return net(layers.BatchNormalization(), layers.Dropout(0.2))


class Predicts(keras.Model):
    """Its own `predict_step` and `get_config`."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def predict_step(self, batch):
        raise RuntimeError("no forecast today")


def predicts():
    model = Predicts()
    model.compile("sgd", "mse")
    return model


class LoadsOnOne(Predicts):
    """Once it is loaded, it predicts on the first worker only."""

    is_loaded = False

    @classmethod
    def from_config(cls, config):
        model = super().from_config(config)
        model.is_loaded = True
        return model

    def predict_step(self, batch):
        if self.is_loaded and not kerasmgpu.is_first_worker():
            raise RuntimeError("worker 1 has no such file")
        return keras.Model.predict_step(self, batch)


def loads_on_one():
    model = LoadsOnOne()
    model.compile("sgd", "mse")
    return model


class Shift(layers.Layer):
    """Forgets its argument when it is saved."""

    def __init__(self, shift=0.0, **keywords):
        super().__init__(**keywords)
        self.shift = shift

    def call(self, x):
        return x + self.shift

    def get_config(self):
        return {"name": self.name}


def shifts():
    return net(Shift(3.0))


def nan():
    return net(layers.Lambda(lambda x: ops.log(-ops.abs(x) - 1)))


def graph_error():
    def loss(y, p):
        return tf.debugging.check_numerics(p / tf.zeros_like(p), "divided by 0")

    return net(loss=loss, jit_compile=False)


class OwnStep(keras.Model):
    """Trains without a loss that `evaluate` could use."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.dense = layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        weights = self.trainable_weights
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights))
        return {"mine": loss}


def own_step():
    model = OwnStep()
    model.compile("sgd")
    return model


def crashes():
    class Killer(keras.metrics.MeanSquaredError):
        def result(self):
            os.kill(os.getpid(), signal.SIGSEGV)

    return net(metrics=[Killer()])


def crashes_or_sleeps():
    return sleeps() if tf.distribute.has_strategy() else crashes()


def sleeps():
    pathlib.Path("asleep").touch()
    time.sleep(1000)


def no_model():
    return None


def on_a_mesh():
    devices = keras.distribution.list_devices()
    shape = (len(devices) // 2, 2)
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts["dense.*/kernel"] = (None, "model")
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch"
        )
    )
    return sound()


def own_strategy():
    layout = {"dense.*/kernel": (None, "model")}
    with kerasmgpu.strategy(mesh=(2, 2), layout=layout).scope():
        return sound()
