"""Programs after public reports: files of models that strategies trained."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from benchmarks.exactness.data import reals
from benchmarks.exactness.keras_io.reports_of_data import small_net
from benchmarks.exactness.keras_io.run import BATCH_SIZE, ROWS
from benchmarks.exactness.registry import report


def compiled(**settings):
    model = small_net(**settings)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


@report("tensorflow/tensorflow", 40366)
def saved_with_a_metric_of_ones_own(run):
    """Reported: a model whose layer has a metric can't be saved."""

    class Measured(layers.Layer):
        def __init__(self, **settings):
            super().__init__(**settings)
            self.size = keras.metrics.Mean(name="size")

        def call(self, x):
            self.size.update_state(keras.ops.mean(keras.ops.abs(x)))
            return x

    x, y = reals(ROWS, 5), reals(ROWS, 1)
    with run.scope():
        inputs = keras.Input((5,))
        hidden = Measured()(layers.Dense(4, activation="tanh")(inputs))
        model = keras.Model(inputs, layers.Dense(1)(hidden))
        model.compile(keras.optimizers.SGD(0.1), "mse")
    run.fit(model, x, y)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        loaded = keras.models.load_model(path, {"Measured": Measured})
        run.keep(after=loaded.predict(x, verbose=0))


@report("tensorflow/tensorflow", 44518)
def weights_with_the_optimizers_state(run):
    """Reported: slots are not restored in a scope."""
    x, y = reals(ROWS, 5), reals(ROWS, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.weights.h5")
        with run.scope():
            first = compiled()
        run.fit(first, x, y)
        first.save_weights(path)
        with run.scope():
            second = compiled()
            second.optimizer.build(second.trainable_variables)
            second.load_weights(path)
        run.keep(
            slots=[np.array(v) for v in second.optimizer.variables],
        )
        run.fit(second, x, y)


@report("tensorflow/tensorflow", 30850)
def model_that_is_loaded_in_a_scope(run):
    """Reported: restoring raises in a scope; the optimizer starts anew."""
    x, y = reals(ROWS, 5), reals(ROWS, 1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        with run.scope():
            model = compiled()
        run.fit(model, x, y)
        model.save(path)
        with run.scope():
            loaded = keras.models.load_model(path)
    run.fit(loaded, x, y)


@report("keras-team/keras", 16788)
def loaded_model_in_a_loop(run):
    """Reported: what was loaded in a scope computes nonsense on replicas."""
    x = reals(24, 5)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        compiled(name="plain").save(path)
        with run.scope():
            strategy = tf.distribute.get_strategy()
            model = keras.models.load_model(path)
            data = strategy.experimental_distribute_dataset(
                tf.data.Dataset.from_tensor_slices(x).batch(BATCH_SIZE)
            )
            call = tf.function(lambda x: strategy.run(model, args=(x,)))
            parts = [strategy.gather(call(batch), axis=0) for batch in data]
    run.keep(after=np.concatenate(parts))


@report("tensorflow/tensorflow", 40342)
def saved_and_loaded_between_epochs(run):
    """Reported: training doesn't go on from a saved model."""
    x, y = reals(ROWS, 5), reals(ROWS, 1)
    with run.scope():
        model = compiled()
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(3):
            run.fit(model, x, y, epochs=epoch + 1, initial_epoch=epoch)
            path = os.path.join(folder, f"{epoch}.keras")
            model.save(path)
            with run.scope():
                model = keras.models.load_model(path)
        run.keep(after=model.evaluate(x, y, verbose=0))


@report("keras-team/keras", 18978)
def averages_that_are_swapped_in(run):
    """Reported: averages of weights fail under a strategy."""
    x, y = reals(ROWS, 5), reals(ROWS, 1)
    with run.scope():
        model = small_net()
        model.compile(
            keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse"
        )
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    run.fit(model, x, y, validation_data=(x, y), callbacks=[swap])
    run.keep(after=model.predict(x, verbose=0))
