"""Programs to verify: sound ones, and ones with a planted fault."""

import concurrent.futures
import contextlib
import time

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 6)).astype("float32")
    return x, random.normal(size=(200, 1)).astype("float32")


def net(*hidden, model=keras.Sequential, **compile_args):
    made = model(
        [keras.Input((6,)), layers.Dense(8, "tanh"), *hidden, layers.Dense(1)]
    )
    arguments = dict(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    made.compile(**{**arguments, **compile_args})
    return made


def sound():
    return net(
        layers.BatchNormalization(), layers.Dropout(0.3), metrics=["mae"]
    )


def masked_tokens():
    random = np.random.default_rng(2)
    x = random.integers(0, 7, size=(150, 5))
    y = random.integers(0, 4, size=(150, 5))
    model = keras.Sequential(
        [
            keras.Input((None,)),
            layers.Embedding(7, 6, mask_zero=True),
            layers.LSTM(4, return_sequences=True),
            layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, metrics=["accuracy"])
    return model, (x, y)


def clears_session():
    keras.utils.clear_session()
    keras.utils.set_random_seed(0)
    return net()


class RunningMean(layers.Layer):
    """Subtracts a running mean of its inputs, of this step's among them."""

    def build(self, shape):
        self.mean = self.add_weight(
            name="mean", shape=shape[1:], initializer="zeros", trainable=False
        )

    def call(self, inputs, training=False):
        if training:
            new = ops.mean(inputs, axis=0)
            self.mean.assign(0.5 * self.mean + 0.5 * new)
        return inputs - self.mean


def batch_dependent_state():
    return net(RunningMean(name="running_mean"))


class Peak(layers.Layer):
    """Keeps the largest input seen, and passes its inputs on."""

    def build(self, shape):
        self.peak = self.add_weight(
            name="peak", shape=(), initializer="zeros", trainable=False
        )

    def call(self, inputs):
        self.peak.assign(ops.maximum(self.peak, ops.max(inputs)))
        return inputs


def running_maximum():
    return net(Peak(name="peak_holder"))


class Centred(layers.Layer):
    """Subtracts the mean over the rows that it happens to be given."""

    def call(self, inputs):
        return inputs - ops.mean(inputs, axis=0, keepdims=True)


def batch_dependent_output():
    return net(layers.Dense(4), Centred(name="centred"))


class ScalesByItself(keras.Sequential):
    """Divides its loss by hand, by the global batch size."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            errors = ops.square(y - self(x, training=True))
            loss = ops.sum(errors) / 26
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class Largest(keras.metrics.Metric):
    """Largest prediction so far, a state that is no sum."""

    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.value.assign(ops.maximum(self.value, ops.max(ops.abs(y_pred))))

    def result(self):
        return self.value


def metric_that_is_no_sum():
    return net(metrics=[Largest()])


def num_devices():
    """What a program must not ask."""
    if not tf.distribute.has_strategy():
        return 1
    return len(tf.distribute.get_strategy().extended.worker_devices)


class ByDevices(layers.Layer):
    """Scales by the number of devices."""

    def call(self, inputs):
        return inputs / num_devices()


def layer_that_asks_for_devices():
    return net(layers.Dense(4), ByDevices(name="scaled"))


def on_a_mesh():
    """Sets a distribution, of columns and then rows, of four devices."""
    devices = keras.distribution.list_devices("cpu")[:4]
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices)
    layouts = keras.distribution.LayoutMap(mesh)
    layouts[".*dense(_\\d+)?/kernel"] = (None, "model")
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch"
        )
    )
    return net(layers.Dense(4), metrics=["mae"])


def layer_that_asks_for_a_mesh():
    on_a_mesh()
    return layer_that_asks_for_devices()


class ScalesByDevices(ScalesByItself):
    """Takes its gradients for those of a share."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = ops.mean(ops.square(y - self(x, training=True)))
        gradients = [
            gradient / num_devices()
            for gradient in tape.gradient(loss, self.trainable_variables)
        ]
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def step_that_asks_for_devices():
    return net(model=ScalesByDevices)


class Devices(keras.metrics.Mean):
    """Counts devices."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(float(num_devices()))


def metric_that_asks_for_devices():
    return net(metrics=[Devices(name="devices")])


def crashes_on_replicas():
    1 / (num_devices() == 1)
    return net()


def optimizer_made_outside():
    """As at a module's import: a scope is that of one thread."""
    with concurrent.futures.ThreadPoolExecutor() as outside:
        optimizer = outside.submit(keras.optimizers.SGD, 0.1).result()
    return net(optimizer=optimizer)


def crashes_on_three_replicas():
    1 / (num_devices() != 3)
    return layer_that_asks_for_devices()


def data_that_crashes():
    yield data()
    raise ZeroDivisionError("division")


def unseeded_order():
    """Of 20 rows, so that two batches of 13 have some in common."""
    order = np.random.default_rng().permutation(20)
    x, y = data()
    return x[order], y[order]


class UnseededNoise(layers.Layer):
    """Adds noise that no seed governs."""

    def call(self, inputs, training=False):
        noise = np.random.default_rng().normal(size=8).astype("float32")
        return inputs + noise


def unseeded_noise():
    return net(UnseededNoise())


def returns_nothing():
    net()


def not_compiled():
    return keras.Sequential([keras.Input((6,)), layers.Dense(1)])


def raises():
    width = {"hidden": 8}
    return net(layers.Dense(width["size"]))


def data_of_unequal_length():
    return np.ones((40, 6)), np.ones((39, 1))


def ill_conditioned():
    """A bias before batch normalisation: its gradient is rounding only."""
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    # Adam with no epsilon to speak of makes a full update of any gradient.
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-30), "mse")
    return model


class RoundsOtherwise(layers.Layer):
    """Moves the second of two columns by two units on replicas."""

    def call(self, inputs):
        if num_devices() == 1:
            return inputs
        unit = np.finfo(str(inputs.dtype.name)).eps
        return inputs * ops.array([1.0, 1.0 + 2 * unit], inputs.dtype)


def tied_scores():
    """Both classes have one score at first, so rounding decides."""
    scores = layers.Dense(2, kernel_initializer="zeros", use_bias=False)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            scores,
            layers.Rescaling(1.0, offset=0.3),
            RoundsOtherwise(),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model, (data()[0], np.ones(200, "int32"))


class AllPairs(keras.Model):
    """Scores of each row with every other one, as many as the batch has."""

    def __init__(self):
        super().__init__()
        self.hidden = layers.Dense(4)

    def call(self, inputs):
        hidden = self.hidden(inputs)
        return ops.matmul(hidden, ops.transpose(hidden))

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return ops.mean(ops.square(y_pred - 1.0))


def outputs_as_wide_as_the_batch():
    model = AllPairs()
    model.compile(keras.optimizers.SGD(0.01))
    return model, (data()[0][:40],)


def hangs():
    time.sleep(600)


class Subclassed(keras.Model):
    """A model of which Keras has no graph."""

    def __init__(self):
        super().__init__()
        self.hidden, self.head = layers.Dense(8), layers.Dense(1)

    def call(self, inputs):
        return self.head(ops.tanh(self.hidden(inputs)))


def subclassed():
    model = Subclassed()
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def unseeded_start():
    """Weights that no seed governs: every run starts from the first's."""
    model = net()
    random = np.random.default_rng()
    model.set_weights([random.normal(size=w.shape) for w in model.weights])
    return model


def pictures(rows=130, classes=10):
    random = np.random.default_rng(0)
    y = random.integers(0, classes, rows)
    x = random.normal(0, 0.6, (rows, 12, 12, 1)).astype("float32")
    for row, number in enumerate(y):
        x[row, number : number + 3, 2:9, 0] += 1
    return x, y


def convolutions(optimizer="adam", step=keras.Sequential):
    """Ordinary, and its weights differ by more than 1e-5 for rounding."""
    model = step(
        [
            keras.Input((12, 12, 1)),
            layers.RandomTranslation(0.05, 0.05),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )
    loss = "sparse_categorical_crossentropy"
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model, pictures()


class OffByAMillionth(keras.Sequential):
    """On replicas the gradient of one layer is off, as by a wrong weight."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        if num_devices() > 1:
            gradients[0] = gradients[0] * (1 + 1e-6)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {**self.compute_metrics(x, y, predicted), "loss": loss}


def tiny_fault_in_convolutions():
    return convolutions(step=OffByAMillionth)


def tiny_fault_in_convolutions_by_sgd():
    return convolutions(keras.optimizers.SGD(0.1), OffByAMillionth)


def tiny_fault_that_adam_hides():
    """Its updates don't depend on a gradient's size."""
    return net(model=OffByAMillionth, optimizer="adam")


def tiny_fault_on_a_mesh():
    on_a_mesh()
    return tiny_fault_that_adam_hides()


class TinyBias(layers.Layer):
    """Adds a millionth to its outputs on replicas."""

    def call(self, inputs):
        return inputs + (1e-6 if num_devices() > 1 else 0.0)


def tiny_fault_in_a_layer():
    return net(TinyBias(name="biased"), optimizer="adam")


class TinyMetric(Devices):
    """A metric that is off by a millionth on replicas."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        value = 1.0 + 1e-6 * (num_devices() > 1)
        return keras.metrics.Mean.update_state(self, value)


def tiny_fault_of_a_metric():
    return net(metrics=[TinyMetric(name="tiny")])


class Float32Only(layers.Layer):
    """Rounds to half precision on replicas, in float32 only."""

    def call(self, inputs):
        if num_devices() > 1 and inputs.dtype == "float32":
            return ops.cast(ops.cast(inputs, "float16"), "float32")
        return inputs


def fault_of_float32():
    return net(Float32Only(name="rounded"))


@contextlib.contextmanager
def policy(name):
    """Keras's default policy is another one inside."""
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(keras.config.floatx())


def mixed_precision():
    with policy("mixed_bfloat16"):
        return net(layers.BatchNormalization(), layers.Dense(4))


def fault_in_mixed_precision():
    with policy("mixed_bfloat16"):
        return net(layers.Dense(4), ByDevices(name="scaled"))


def outputs_of_float32(step=keras.Sequential, **compile_args):
    """Mixed precision as Keras's guide has it."""
    with policy("mixed_bfloat16"):
        return net(
            layers.Dense(4),
            layers.Activation("tanh", dtype="float32"),
            model=step,
            **compile_args,
        )


def tiny_fault_beside_float32():
    return outputs_of_float32(OffByAMillionth, optimizer="adam")


def one_layer_of_bfloat16():
    return net(layers.Dense(4, dtype="mixed_bfloat16"))


def fault_beside_bfloat16():
    return net(
        layers.Dense(4, dtype="mixed_bfloat16"), ByDevices(name="scaled")
    )


class Bfloat16(keras.DTypePolicy):
    """A policy of one's own, of which nobody knows the float64."""

    compute_dtype = "bfloat16"

    def __init__(self):
        super().__init__("float32")


def policy_of_its_own():
    return net(layers.Dense(4, dtype=Bfloat16()))


def fault_where_a_type_stays():
    return net(layers.Dense(4, dtype=Bfloat16()), ByDevices(name="scaled"))


class Single(layers.Layer):
    """Adds numbers of float32, whatever it is given."""

    def call(self, inputs):
        return tf.cast(inputs, tf.float32) + tf.ones([], tf.float32)


def casts_by_hand():
    return net(Single())


def loss_of_float32():
    """Its mean over the rows is of float32."""

    def loss(y_true, y_pred):
        errors = tf.cast(y_true, tf.float32) - tf.cast(y_pred, tf.float32)
        return tf.reduce_mean(tf.square(errors))

    return net(loss=loss)


def top_k_of_float32():
    """TensorFlow has the metric in float32 only."""
    model = keras.Sequential([keras.Input((6,)), layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    top = keras.metrics.SparseTopKCategoricalAccuracy(2, name="top")
    model.compile("adam", loss, metrics=[top])
    labels = np.random.default_rng(1).integers(0, 5, 200)
    return model, (data()[0], labels)


class Half(layers.Layer):
    """Multiplies by a variable of float32, which no float64 fits."""

    def build(self, _):
        self.half = tf.Variable(0.5)

    def call(self, inputs):
        return inputs * self.half


def refuses_float64():
    return net(Half())
