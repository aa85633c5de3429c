"""Programs that must train the same model on N replicas as on one device.

A case builds and compiles a model and says what to fit it on. Cases know
nothing of strategies: `harness.py` runs each in the scope that it is given.
"""

import inspect

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.registry import Program, parity


def rows(count=58, features=6, outputs=1, seed=0):
    """Inputs and targets whose last batch of 24 does not divide: 24, 24, 10."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, features)).astype("float32")
    y = random.normal(size=(count, outputs)).astype("float32")
    return x, y


def arrays(x, y, **more):
    """`fit` arguments for arrays in the given order."""
    return dict(x=x, y=y, batch_size=24, epochs=2, shuffle=False, **more)


def dense_net(
    loss="mse", optimizer=None, features=6, outputs=1, **compile_args
):
    """A small net of two dense layers."""
    model = keras.Sequential(
        [
            keras.Input((features,)),
            layers.Dense(8, activation="tanh"),
            layers.Dense(outputs),
        ]
    )
    optimizer = optimizer or keras.optimizers.SGD(0.1)
    model.compile(optimizer, loss, **compile_args)
    return model


def net(hidden, loss="mse", optimizer=None, features=6, **compile_args):
    """A net with the given layers between two dense ones."""
    model = keras.Sequential(
        [keras.Input((features,)), layers.Dense(8), *hidden, layers.Dense(1)]
    )
    model.compile(optimizer or keras.optimizers.SGD(0.1), loss, **compile_args)
    return model


def fitted(model, **more):
    x, y = rows()
    return Program(model, arrays(x, y, **more), x)


# Batches --------------------------------------------------------------------


@parity("batches", replica_counts=(2, 8))
def uneven_last_batch():
    return fitted(dense_net(metrics=["mae"]))


@parity("batches", replica_counts=(2, 3, 8))
def one_row_in_the_last_batch():
    x, y = rows(49)
    return Program(dense_net(), arrays(x, y), x)


@parity("batches", replica_counts=(2, 3, 8))
def first_batch_of_one_row():
    x, y = rows(25)
    batches = [(x[:1], y[:1]), (x[1:], y[1:])]
    return Program(
        dense_net(), dict(x=dataset_of(batches), epochs=2), dataset_of(batches)
    )


def dataset_of(batches):
    """A `tf.data.Dataset` of the given batches, whatever their sizes."""
    spec = tf.nest.map_structure(
        lambda a: tf.TensorSpec([None, *a.shape[1:]], a.dtype), batches[0]
    )
    return tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=spec
    )


@parity("batches")
def evaluation_batch_that_does_not_divide():
    x, y = rows(48)
    return Program(
        dense_net(),
        arrays(
            x, y, validation_data=(x[:25], y[:25]), validation_batch_size=25
        ),
        x,
        dict(x=x[:25], y=y[:25], batch_size=25),
    )


@parity("batches")
def class_weight():
    x, _ = rows()
    y = np.arange(len(x)) % 3
    model = dense_net(
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        outputs=3,
        metrics=["accuracy"],
    )
    weights = {0: 1.0, 1: 4.0, 2: 0.25}
    return Program(model, arrays(x, y, class_weight=weights), x)


@parity("batches")
def sample_weight():
    x, y = rows()
    weights = np.random.default_rng(1).uniform(size=len(x)).astype("float32")
    model = dense_net(weighted_metrics=["mae"])
    return Program(model, arrays(x, y, sample_weight=weights), x)


@parity("batches")
def steps_per_execution():
    return fitted(dense_net(steps_per_execution=3), verbose=0)


@parity("batches")
def run_eagerly():
    return fitted(dense_net(run_eagerly=True))


@parity("batches")
def trainer_mixed_into_a_layer():
    x, y = rows()
    # Keras's own tests train such models; `Trainer` has no public name.
    (trainer,) = {
        base
        for base in keras.Model.__mro__
        if base.__module__ == "keras.src.backend.tensorflow.trainer"
    }

    class Model(trainer, layers.Dense):
        def __init__(self):
            layers.Dense.__init__(self, 1)
            trainer.__init__(self)

    model = Model()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return Program(model, arrays(x, y), x)


@parity("batches")
def static_batch_size():
    x, y = rows(48)
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    model = net(
        [
            layers.Dense(24, activity_regularizer="l2"),
            AddsLoss(lambda h: 0.003 * ops.sum(ops.square(h))),
            layers.Dropout(0.3, seed=1),
        ]
    )
    batches = dataset.batch(24, drop_remainder=True)
    return Program(model, dict(x=batches, epochs=2), batches)


class OfAFixedBatch(keras.Model):
    """A model whose Python code asks how many rows a batch has."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(6), layers.Dense(1)

    def call(self, inputs):
        rows = ops.split(self.hidden(inputs), inputs.shape[0])
        return self.out(ops.concatenate(rows[::-1])[::-1])


@parity("batches")
def static_batch_size_in_python():
    dataset = tf.data.Dataset.from_tensor_slices(rows(48)).repeat(2)
    model = OfAFixedBatch()
    model.compile("sgd", "mse")
    # How many batches there are, Keras finds out.
    batches = dataset.filter(lambda x, y: True).batch(24, drop_remainder=True)
    return Program(model, dict(x=batches, epochs=2), batches)


@parity("batches")
def jit_compile():
    return fitted(dense_net(jit_compile=True))


@parity("batches")
def several_inputs_and_outputs():
    x, y = rows()
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    shared = layers.Dense(8, activation="tanh")(a) + layers.Dense(8)(b)
    model = keras.Model(
        {"a": a, "b": b},
        {
            "p": layers.Dense(1, name="p")(shared),
            "q": layers.Dense(1, name="q")(shared),
        },
    )
    model.compile(
        keras.optimizers.SGD(0.1),
        {"p": "mse", "q": "mae"},
        loss_weights={"p": 1.0, "q": 0.3},
        metrics={"p": ["mae"], "q": ["mse"]},
    )
    inputs = {"a": x, "b": x[::-1].copy()}
    return Program(model, arrays(inputs, {"p": y, "q": -y}), inputs)


# Losses ---------------------------------------------------------------------


def tokens(count=58, length=5):
    random = np.random.default_rng(2)
    x = random.integers(0, 7, size=(count, length))
    y = random.integers(0, 4, size=(count, length))
    return x, y


def token_model(loss, recurrent=False, **compile_args):
    """A row of logits per token, of tokens of which some are masked."""
    hidden = layers.LSTM(4, return_sequences=True) if recurrent else None
    model = keras.Sequential(
        [
            keras.Input((None,)),
            layers.Embedding(7, 6, mask_zero=True),
            hidden or layers.Dense(4, "tanh"),
            layers.Dense(4),
        ]
    )
    model.compile(keras.optimizers.SGD(0.5), loss, **compile_args)
    return model


def token_loss(**settings):
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, **settings
    )


@parity("losses", replica_counts=(2, 4))
def masked_loss_per_token():
    x, y = tokens()
    model = token_model(token_loss(), recurrent=True, metrics=["accuracy"])
    return Program(model, arrays(x, y), x)


@parity("losses")
def masked_loss_with_weights_per_token():
    x, y = tokens()
    weights = np.random.default_rng(3).uniform(size=x.shape).astype("float32")
    return Program(
        token_model(token_loss()), arrays(x, y, sample_weight=weights), x
    )


@parity("losses")
def loss_mean_with_sample_weight():
    x, y = rows()
    weights = np.random.default_rng(1).uniform(size=len(x)).astype("float32")
    loss = keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
    return Program(dense_net(loss), arrays(x, y, sample_weight=weights), x)


@parity("losses")
def loss_ignore_class():
    x, y = tokens()
    return Program(token_model(token_loss(ignore_class=0)), arrays(x, y), x)


@parity("losses")
def loss_sum():
    loss = keras.losses.MeanSquaredError(reduction="sum")
    return fitted(dense_net(loss, keras.optimizers.SGD(0.003)))


@parity("losses")
def loss_function_of_a_scalar_mean():
    def scalar_mean(y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred))

    return fitted(dense_net(scalar_mean))


@parity("losses")
def loss_class_of_a_scalar_mean():
    class ScalarMean(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return ops.mean(ops.abs(y_true - y_pred))

    return fitted(dense_net(ScalarMean()))


@parity("losses")
def predictions_without_a_feature_axis():
    x, y = rows()
    inputs = keras.Input((6,))
    outputs = ops.squeeze(layers.Dense(1)(inputs), -1)
    model = keras.Model(inputs, outputs)
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.Huber(),
        metrics=["mae", keras.metrics.RootMeanSquaredError()],
    )
    return Program(model, arrays(x, y[:, 0]), x)


@parity("losses")
def loss_function_per_row():
    def per_row(y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred), axis=-1)

    return fitted(dense_net(per_row))


@parity("losses")
def loss_function_marked_row_wise():
    def per_row(y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred), axis=-1)

    per_row.row_wise = True
    return fitted(dense_net(per_row))


def segmentation(loss):
    x, y = rows(outputs=4)
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(4, activation="sigmoid")]
    )
    model.compile(keras.optimizers.SGD(0.5), loss)
    return Program(model, arrays(x, (y > 0).astype("float32")), x)


@parity("losses")
def dice():
    return segmentation(keras.losses.Dice())


@parity("losses")
def tversky():
    return segmentation(keras.losses.Tversky(0.3, 0.7))


@parity("losses")
def contrast_within_the_batch():
    def contrast(y_true, y_pred):
        return ops.logsumexp(ops.matmul(y_pred, ops.transpose(y_pred)), axis=-1)

    return fitted(dense_net(contrast))


@parity("losses")
def own_compute_loss():
    class Model(keras.Model):
        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            own = ops.mean(ops.square(y - y_pred)) + ops.std(y_pred)
            return own + ops.sum(self.losses)

    inputs = keras.Input((6,))
    outputs = layers.Dense(
        1, kernel_regularizer="l2", activity_regularizer="l1"
    )(inputs)
    model = Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.1))
    return fitted(model)


@parity("losses")
def own_train_step_with_a_mean():
    class Model(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = ops.mean(ops.square(y - self(x, training=True)))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"loss": loss}

    inputs = keras.Input((6,))
    model = Model(inputs, layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return fitted(model)


@parity("losses")
def own_train_step_that_adds_terms_by_hand():
    class Model(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
                loss += 0.3 * ops.mean(ops.square(y_pred))
                loss += 0.1 * ops.sum(ops.square(self.trainable_variables[0]))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply(gradients, self.trainable_variables)
            return {"total": loss}

    inputs = keras.Input((6,))
    hidden = layers.BatchNormalization()(layers.Dense(4)(inputs))
    model = Model(inputs, layers.Dense(1)(hidden))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return fitted(model)


@parity("losses")
def own_train_step_with_compute_loss():
    class Model(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(
                zip(gradients, self.trainable_variables)
            )
            for metric in self.metrics:
                if metric.name == "loss":
                    metric.update_state(loss)
                else:
                    metric.update_state(y, y_pred)
            return {m.name: m.result() for m in self.metrics}

    inputs = keras.Input((6,))
    model = Model(inputs, layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return fitted(model)


# Regularisers and add_loss --------------------------------------------------


@keras.saving.register_keras_serializable("tests")
class AddsLoss(layers.Layer):
    """Adds `function(inputs)` to the losses and passes its inputs on."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, inputs):
        self.add_loss(self.function(inputs))
        return inputs


@parity("regularisers")
def weight_and_activity_regularisers():
    hidden = [
        layers.Dense(8, kernel_regularizer="l2", activity_regularizer="l2")
    ]
    return fitted(net(hidden))


@parity("regularisers")
def activity_regulariser_and_batch_normalisation():
    hidden = [
        layers.Dense(8, activity_regularizer="l2"),
        layers.BatchNormalization(synchronized=True),
        layers.Dense(8, activity_regularizer="l1"),
    ]
    x, y = rows(48)
    return Program(net(hidden), arrays(x, y), x)


@parity("regularisers")
def add_loss_of_a_mean():
    return fitted(net([AddsLoss(lambda h: 0.1 * ops.mean(ops.square(h)))]))


@parity("regularisers")
def add_loss_of_a_sum():
    return fitted(net([AddsLoss(lambda h: 0.003 * ops.sum(ops.square(h)))]))


# Optimizers -----------------------------------------------------------------


@parity("optimizers")
def clipnorm():
    return fitted(dense_net(optimizer=keras.optimizers.SGD(0.5, clipnorm=0.1)))


@parity("optimizers")
def global_clipnorm():
    return fitted(
        dense_net(optimizer=keras.optimizers.Adam(0.02, global_clipnorm=0.1))
    )


@parity("optimizers")
def clipvalue():
    return fitted(
        dense_net(optimizer=keras.optimizers.SGD(0.5, clipvalue=0.05))
    )


@parity("optimizers")
def clipnorm_of_sparse_gradients():
    x, y = tokens()
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Embedding(7, 6),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02, clipnorm=0.1), "mse")
    return Program(model, arrays(x, y[:, :1].astype("float32")), x)


@parity("optimizers")
def gradient_accumulation():
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    return fitted(dense_net(optimizer=optimizer))


@parity("optimizers")
def moving_average_that_overwrites():
    optimizer = keras.optimizers.Adam(
        0.02, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2
    )
    return fitted(dense_net(optimizer=optimizer))


@parity("optimizers")
def weight_decay():
    return fitted(dense_net(optimizer=keras.optimizers.AdamW(0.02, 0.1)))


@parity("optimizers")
def variables_made_of_constants_in_the_first_step():
    model = keras.Sequential([layers.Dense(8), layers.Dense(1)])
    model.compile(keras.optimizers.Adafactor(0.02), "mse")
    return fitted(model)


@parity("optimizers")
def schedule_and_constraint():
    schedule = keras.optimizers.schedules.CosineDecay(0.2, 6)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, kernel_constraint="unit_norm"),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(schedule, momentum=0.9), "mse")
    return fitted(model)


@keras.saving.register_keras_serializable("tests")
class Amplifies(layers.Layer):
    """Multiplies rows by their first feature's exponential: may overflow."""

    def call(self, inputs):
        return inputs * ops.exp(inputs[:, :1])


@parity("optimizers")
def loss_scale_with_overflow_on_one_replica():
    x, y = rows(48)
    x[23] = 1e30
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.1), initial_scale=4.0
    )
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(8), layers.Dense(1)]
    )
    model.compile(optimizer, "mse")
    return Program(model, arrays(x, y), x[24:])


@parity("optimizers", replica_counts=(3,))
def weights_of_two_types():
    x, y = rows()
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="tanh", dtype="float64"),
            layers.Dense(1, dtype="float32"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return Program(model, arrays(x, y), x)


@parity("optimizers", tolerance=2e-2)
def mixed_float16():
    policy = keras.DTypePolicy("mixed_float16")
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="tanh", dtype=policy),
            layers.Dense(1, dtype=policy),
            layers.Activation("linear", dtype="float32"),
        ]
    )
    model.compile(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)), "mse"
    )
    return fitted(model)


# Batch normalisation --------------------------------------------------------


@parity("batch normalisation", replica_counts=(2, 8))
def batch_normalisation():
    return fitted(net([layers.BatchNormalization(momentum=0.7)]))


@parity("batch normalisation")
def batch_normalisation_synchronized():
    return fitted(net([layers.BatchNormalization(synchronized=True)]))


@parity("batch normalisation")
def batch_normalisation_with_empty_replicas():
    x, y = rows(25)
    return Program(net([layers.BatchNormalization()]), arrays(x, y), x)


@parity("batch normalisation")
def batch_normalisation_with_a_mask():
    x, y = tokens()
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Embedding(7, 6, mask_zero=True),
            layers.BatchNormalization(synchronized=True),
            layers.Dense(4),
        ]
    )
    model.compile(keras.optimizers.SGD(0.5), token_loss())
    return Program(model, arrays(x, y), x)


if "renorm" in inspect.signature(layers.BatchNormalization).parameters:

    @parity("batch normalisation")
    def batch_renormalisation():
        return fitted(net([layers.BatchNormalization(renorm=True)]))


@parity("batch normalisation")
def batch_normalisation_of_images():
    random = np.random.default_rng(4)
    x = random.normal(size=(58, 6, 6, 3)).astype("float32")
    y = random.normal(size=(58, 1)).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(axis=-1),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return Program(model, arrays(x, y), x)


@parity("batch normalisation")
def convolution_with_empty_replicas(**compile_args):
    random = np.random.default_rng(4)
    x = random.normal(size=(25, 6, 6, 3)).astype("float32")
    y = random.normal(size=(25, 1)).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.DepthwiseConv2D(2),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse", **compile_args)
    return Program(model, arrays(x, y), x)


@parity("batches")
def jit_compile_of_convolutions():
    return convolution_with_empty_replicas(jit_compile=True)


# Randomness -----------------------------------------------------------------


@parity("randomness", replica_counts=(2, 4))
def dropout():
    return fitted(net([layers.Dropout(0.4, seed=3)]))


@parity("randomness")
def noise_and_spatial_dropout():
    x, y = tokens()
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Embedding(7, 6),
            layers.SpatialDropout1D(0.3, seed=1),
            layers.GaussianNoise(0.5, seed=2),
            layers.GaussianDropout(0.3, seed=5),
            layers.Dense(4),
        ]
    )
    model.compile(keras.optimizers.SGD(0.5), token_loss())
    return Program(model, arrays(x, y), x)


@parity("randomness")
def random_image_layers():
    random = np.random.default_rng(4)
    x = random.uniform(size=(58, 6, 6, 3)).astype("float32")
    y = random.normal(size=(58, 1)).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.RandomFlip(seed=1),
            layers.RandomTranslation(0.3, 0.3, seed=2),
            layers.RandomContrast(0.5, seed=3),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return Program(model, arrays(x, y), x)


@parity("randomness")
def dropout_in_a_recurrent_layer():
    x, y = tokens()
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Embedding(7, 6),
            layers.GRU(4, dropout=0.3, recurrent_dropout=0.2, seed=7),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return Program(model, arrays(x, y[:, :1].astype("float32")), x)


@keras.saving.register_keras_serializable("tests")
class NoiseFromTheGlobalSeed(layers.Layer):
    """Adds unseeded `keras.random` noise while training."""

    def call(self, inputs, training=False):
        if not training:
            return inputs
        return inputs + 0.1 * keras.random.normal(ops.shape(inputs))


@parity("randomness")
def unseeded_noise_in_a_layer():
    return fitted(net([NoiseFromTheGlobalSeed()]))


@parity("randomness")
def a_generator_of_tensorflow():
    class Noise(layers.Layer):
        def __init__(self):
            super().__init__()
            self.generator = tf.random.Generator.from_seed(3)

        def call(self, x):
            return x + self.generator.normal(tf.shape(x))

    return fitted(net([Noise()]))


# Data -----------------------------------------------------------------------


@parity("data")
def a_python_generator():
    x, y = rows(60)

    def batches():
        while True:
            for start in range(0, 60, 10):
                yield x[start : start + 10].copy(), y[start : start + 10].copy()

    return Program(
        dense_net(), dict(x=batches(), steps_per_epoch=6, epochs=2), x
    )


def of_unknown_length():
    """Batches of 24, 24 and 10 rows, whose number Keras finds out."""
    dataset = tf.data.Dataset.from_tensor_slices(rows())
    return dataset.filter(lambda x, y: True).batch(24)


def dropout_net(optimizer, **compile_args):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="tanh"),
            layers.Dropout(0.5, seed=3),
            layers.Dense(1),
        ]
    )
    model.compile(optimizer, "mse", **compile_args)
    return model


@parity("data")
def data_of_unknown_length():
    """At its end TensorFlow draws, counts and decays once more: so must we."""
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.1, epsilon=0.1)
    dataset = of_unknown_length()
    fit = dict(x=dataset, epochs=3, validation_data=dataset)
    return Program(dropout_net(optimizer), fit, rows()[0], dict(x=dataset))


@parity("data", replica_counts=(2,))
def data_of_unknown_length_and_xla():
    """XLA runs a step as a whole, or not at all."""
    optimizer = keras.optimizers.Adam(0.01, epsilon=0.1)
    model = dropout_net(optimizer, jit_compile=True)
    return Program(model, dict(x=of_unknown_length(), epochs=3), rows()[0])


@parity("data", replica_counts=(2,))
def data_of_unknown_length_several_steps_a_call():
    optimizer = keras.optimizers.Adam(0.01, epsilon=0.1)
    model = dropout_net(optimizer, steps_per_execution=2)
    return Program(model, dict(x=of_unknown_length(), epochs=3), rows()[0])


@parity("data")
def a_shuffled_tf_data_set():
    x, y = rows()
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(58, seed=5)
    return Program(dense_net(), dict(x=dataset.batch(24), epochs=2), x)


@parity("data")
def shuffled_arrays():
    x, y = rows()
    return Program(dense_net(), dict(x=x, y=y, batch_size=24, epochs=2), x)


class Views(keras.utils.PyDataset):
    """Batches that are views of the user's arrays."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return -(-len(self.x) // 24)

    def __getitem__(self, index):
        batch = slice(24 * index, 24 * (index + 1))
        return self.x[batch], self.y[batch]


@parity("data")
def views_through_a_py_dataset():
    x, y = rows()
    return Program(dense_net(), dict(x=Views(x, y), epochs=2, shuffle=False), x)


@parity("data")
def strings():
    words = np.array(["a", "b", "c", "d"])[np.arange(58) % 4]
    _, y = rows()
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="string"),
            layers.StringLookup(vocabulary=["a", "b", "c"]),
            layers.Embedding(4, 3),
            layers.Flatten(),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    dataset = tf.data.Dataset.from_tensor_slices((words[:, None], y)).batch(24)
    return Program(model, dict(x=dataset, epochs=2), dataset)


@parity("data")
def booleans():
    x, y = rows()
    model = keras.Sequential(
        [
            keras.Input((6,), dtype="bool"),
            layers.Lambda(lambda b: ops.cast(b, "float32")),
            layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return Program(model, arrays(x > 0, y), x > 0)


@parity("data")
def sparse_tensors():
    x, y = rows()
    x = np.where(x > 0.5, x, 0)
    inputs = keras.Input((6,), sparse=True)
    model = keras.Model(inputs, layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.sparse.from_dense(x), y)
    ).batch(24)
    return Program(model, dict(x=dataset, epochs=2), dataset)


@keras.saving.register_keras_serializable("tests")
class MeanOfRagged(layers.Layer):
    """Mean over the ragged axis."""

    def call(self, inputs):
        return tf.reduce_mean(inputs, axis=1)[:, None]

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 1)


@parity("data")
def ragged_tensors():
    random = np.random.default_rng(6)
    lengths = random.integers(1, 5, size=58)
    x = tf.RaggedTensor.from_row_lengths(
        random.normal(size=lengths.sum()).astype("float32"), lengths
    )
    _, y = rows()

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.mean, self.dense = MeanOfRagged(), layers.Dense(1)

        def call(self, inputs):
            return self.dense(self.mean(inputs))

    model = Model()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(24)
    return Program(model, dict(x=dataset, epochs=2), dataset)


# Metrics --------------------------------------------------------------------


@parity("metrics")
def built_in_metrics():
    x, y = rows()
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(1, activation="sigmoid")]
    )
    model.compile(
        keras.optimizers.SGD(0.1),
        "binary_crossentropy",
        metrics=["accuracy", "auc", keras.metrics.F1Score(threshold=0.5)],
        weighted_metrics=["mse"],
    )
    return Program(model, arrays(x, (y > 0).astype("float32")), x)


class KeepsRows(layers.Layer):
    """Keeps rows of the batch in variables of one shape."""

    def build(self, shape):
        self.kept = [
            self.add_weight(
                shape=(8, 6), initializer="zeros", trainable=False, name=f"{n}"
            )
            for n in range(5)
        ]

    def call(self, x, training=False):
        before = sum(self.kept)
        if training:
            for n, variable in enumerate(self.kept):
                variable.assign(ops.sin(x * (n + 1)))
        return x + ops.mean(before, 0) if training else x


@parity("batches")
def rows_of_a_batch_that_stay():
    x, y = rows(48)
    inputs = keras.Input((6,), batch_size=8)
    model = keras.Model(inputs, layers.Dense(1)(KeepsRows()(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    batches = [(x[n : n + 8], y[n : n + 8]) for n in range(0, 48, 8)]
    data = dataset_of(batches)
    return Program(model, dict(x=data, epochs=2), data.map(lambda x, y: x))


class PickedOfTwo(layers.Layer):
    """Puts a batch behind itself, and picks the second half again."""

    def call(self, x):
        both = ops.concatenate([2.0 * x, x], 0)
        picked = ops.concatenate([x[:, 0] > 1e9, x[:, 0] < 1e9], 0)
        return tf.boolean_mask(both, picked)


@parity("batches")
def rows_that_a_mask_picks_of_two_blocks():
    inputs = keras.Input((6,))
    model = keras.Model(inputs, layers.Dense(1)(PickedOfTwo()(inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return fitted(model)


@parity("losses")
def pairs_and_ranks_of_a_batch():
    def loss(y_true, y_pred):
        pairs = ops.mean(ops.abs(y_pred - ops.transpose(y_pred)), -1)
        return pairs + ops.mean(ops.square(y_pred - ops.sort(y_true, 0)), -1)

    inputs = keras.Input((6,))
    model = keras.Model(inputs, layers.Dense(1)(inputs))
    model.compile(keras.optimizers.SGD(0.1), loss)
    return fitted(model)


@keras.saving.register_keras_serializable("tests")
class Largest(keras.metrics.Metric):
    """Largest prediction so far: a state that is no sum."""

    def __init__(self, name="largest", **kwargs):
        super().__init__(name=name, **kwargs)
        self.value = self.add_weight(
            name="value", initializer=keras.initializers.Constant(-1e3)
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(ops.maximum(self.value, ops.max(y_pred)))

    def reset_state(self):
        self.value.assign(-1e3)

    def result(self):
        return self.value + 0.0


@parity("metrics")
def metric_that_is_no_sum():
    return fitted(dense_net(metrics=[Largest()]))


@parity("metrics")
def metric_function_of_the_whole_batch():
    def spread(y_true, y_pred):
        return ops.std(y_pred)

    return fitted(dense_net(metrics=[spread]))
