"""Programs after keras.io's recipes and guides: ways to train."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


def rows(features=5, classes=3):
    return reals(ROWS, features), integers(classes, ROWS)


def network(classes=3, **settings):
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(8, activation="relu", **settings),
            layers.Dense(classes),
        ]
    )


def class_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@example("guides/custom_train_step_in_tensorflow", in_suite=True)
def own_train_step(run):
    """Own losses and metrics, sample weights, and an own test step."""

    class Own(keras.Model):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.mae = keras.metrics.MeanAbsoluteError(name="mae")
            self.loss_fn = keras.losses.MeanSquaredError()

        @property
        def metrics(self):
            return [self.loss_tracker, self.mae]

        def train_step(self, data):
            x, y, weights = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                loss = self.loss_fn(y, predicted, sample_weight=weights)
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            self.loss_tracker.update_state(loss)
            self.mae.update_state(y, predicted, sample_weight=weights)
            return {m.name: m.result() for m in self.metrics}

        def test_step(self, data):
            x, y = data
            predicted = self(x, training=False)
            self.loss_tracker.update_state(self.loss_fn(y, predicted))
            self.mae.update_state(y, predicted)
            return {m.name: m.result() for m in self.metrics}

    x, y = reals(ROWS, 5), reals(ROWS, 1, seed=1)
    weights = np.random.default_rng(2).uniform(size=(ROWS, 1))
    with run.scope():
        inputs = keras.Input((5,))
        hidden = layers.Dense(8, activation="relu")(inputs)
        model = Own(inputs, layers.Dense(1)(hidden))
        model.compile("adam")
    run.fit(model, x, y, sample_weight=weights)
    run.keep(score=model.evaluate(x, y, verbose=0))


@example("examples/keras_recipes/endpoint_layer_pattern")
def endpoint_layer(run):
    class Endpoint(layers.Layer):
        """Loss, metric and prediction of logits in one layer."""

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.loss_fn = keras.losses.BinaryCrossentropy(from_logits=True)
            self.accuracy = keras.metrics.BinaryAccuracy(name="accuracy")

        def call(self, logits, targets=None, sample_weight=None):
            if targets is not None:
                self.add_loss(self.loss_fn(targets, logits, sample_weight))
                self.accuracy.update_state(targets, logits, sample_weight)
            return ops.sigmoid(logits)

    with run.scope():
        inputs, targets = keras.Input((5,)), keras.Input((1,))
        logits = layers.Dense(1)(layers.Dense(6, activation="relu")(inputs))
        model = keras.Model(
            [inputs, targets], Endpoint(name="predictions")(logits, targets)
        )
        model.compile(keras.optimizers.Adam(0.01))
    run.fit(model, [reals(ROWS, 5), integers(2, ROWS, 1).astype("float64")])


@example("examples/keras_recipes/trainer_pattern")
def trainer_pattern(run):
    """A trainer with a step of its own trains any model that it is given."""

    class Trainer(keras.Model):
        def __init__(self, model):
            super().__init__()
            self.model = model
            self.one = keras.Sequential([layers.GaussianNoise(0.2)])
            self.two = keras.Sequential([layers.GaussianNoise(0.1)])

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                scores = self.model(self.one(x), training=True)
                loss = self.compute_loss(y=y, y_pred=scores)
            variables = self.model.trainable_weights
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, scores)
            return {m.name: m.result() for m in self.metrics}

        def call(self, x):
            return self.model(self.two(x))

    x, y = rows()
    with run.scope():
        trainer = Trainer(network())
        trainer.compile(
            keras.optimizers.Adam(0.01), class_loss(), metrics=["accuracy"]
        )
    run.fit(trainer, x, y, validation_data=(x, y))


@example("examples/vision/gradient_centralization")
def gradient_centralization(run):
    """An optimizer of one's own takes the mean from each gradient."""

    class Central(keras.optimizers.RMSprop):
        def apply(self, gradients, trainable_variables=None):
            central = []
            for gradient in gradients:
                if len(gradient.shape) > 1:
                    axes = list(range(len(gradient.shape) - 1))
                    gradient -= ops.mean(gradient, axis=axes, keepdims=True)
                central.append(gradient)
            return super().apply(central, trainable_variables)

    x, y = images(ROWS, 8, 8, 3), integers(2, ROWS)
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.Conv2D(4, 3, activation="relu"),
                layers.MaxPooling2D(2),
                layers.Dropout(0.5),
                layers.Flatten(),
                layers.Dense(1, activation="sigmoid"),
            ]
        )
        model.compile(
            Central(1e-3), "binary_crossentropy", metrics=["accuracy"]
        )
    run.fit(model, x, y)


@example("guides/writing_your_own_callbacks")
def callbacks_that_write(run):
    """Best weights, back-ups and a table are files; rates are printed."""
    x, y = rows()
    with run.scope():
        model = network(kernel_constraint=keras.constraints.MaxNorm(1.0))
        model.compile(
            keras.optimizers.SGD(0.5, momentum=0.9),
            class_loss(),
            metrics=["accuracy"],
        )
    with tempfile.TemporaryDirectory() as folder:
        best = os.path.join(folder, "best.keras")
        callbacks = [
            keras.callbacks.LearningRateScheduler(
                lambda epoch, rate: min(0.5, 0.1 * (epoch + 1))
            ),
            keras.callbacks.ReduceLROnPlateau("val_loss", patience=1),
            keras.callbacks.ModelCheckpoint(best, save_best_only=True),
            keras.callbacks.BackupAndRestore(os.path.join(folder, "backup")),
            keras.callbacks.CSVLogger(os.path.join(folder, "log.csv")),
            keras.callbacks.EarlyStopping(
                patience=2, restore_best_weights=True
            ),
        ]
        run.fit(
            model, x, y, validation_data=(x, y), callbacks=callbacks, epochs=5
        )
        loaded = keras.models.load_model(best)
        run.keep(best=loaded.predict(x, verbose=0))


@example("examples/nlp/parameter_efficient_finetuning_of_gpt2_with_lora")
def own_lora_layers(run):
    """A trained model's dense layers get factors that are trained alone."""

    class Lora(layers.Layer):
        def __init__(self, original, rank=2):
            super().__init__(name=original.name + "_lora")
            self.original = original
            self.original.trainable = False
            self.down = layers.Dense(rank, use_bias=False)
            self.up = layers.Dense(
                original.units, kernel_initializer="zeros", use_bias=False
            )

        def call(self, x):
            return self.original(x) + 0.5 * self.up(self.down(x))

    x, y = rows()
    with run.scope():
        model = network()
        model.compile(keras.optimizers.Adam(0.01), class_loss())
    run.fit(model, x, y)
    with run.scope():
        inputs = keras.Input((5,))
        hidden = Lora(model.layers[0])(inputs)
        tuned = keras.Model(inputs, Lora(model.layers[1])(hidden))
        tuned.compile(
            keras.optimizers.AdamW(0.05, weight_decay=0.01, clipnorm=1.0),
            class_loss(),
            weighted_metrics=["accuracy"],
        )
    run.fit(tuned, x, y[::-1].copy())


@example("examples/keras_recipes/antirectifier")
def antirectifier(run):
    """A layer that keeps both signs; a metric and a loss of one's own."""

    class Antirectifier(layers.Layer):
        def build(self, shape):
            self.kernel = self.add_weight(
                shape=(2 * shape[-1], shape[-1]), initializer="he_normal"
            )

        def call(self, x):
            x = x - ops.mean(x, axis=-1, keepdims=True)
            both = ops.concatenate([ops.relu(x), ops.relu(-x)], axis=-1)
            return ops.matmul(both, self.kernel)

    class RightOnes(keras.metrics.Metric):
        def __init__(self, name="right_ones", **kwargs):
            super().__init__(name=name, **kwargs)
            self.total = self.add_weight(name="total", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            right = ops.equal(
                ops.cast(y_true, "int64"), ops.argmax(y_pred, axis=-1)
            )
            self.total.assign_add(ops.sum(ops.cast(right, self.dtype)))

        def result(self):
            return self.total

    def confident(y_true, y_pred):
        loss = keras.losses.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )
        sure = ops.max(ops.softmax(y_pred), axis=-1)
        return ops.mean(loss) + 0.1 * ops.mean(sure)

    x, y = rows()
    with run.scope():
        model = keras.Sequential(
            [
                keras.Input((5,)),
                layers.Dense(8),
                Antirectifier(),
                layers.Dropout(0.5),
                layers.Dense(3),
            ]
        )
        model.compile("rmsprop", confident, metrics=[RightOnes()])
    run.fit(model, x, y, validation_split=0.2)
