"""Programs after public reports: losses, metrics, optimizers, own steps."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals
from benchmarks.exactness.keras_io.reports_of_data import small_net
from benchmarks.exactness.keras_io.run import BATCH_SIZE, ROWS
from benchmarks.exactness.registry import report


@report("keras-team/keras", 21054)
def metric_that_counts_rows(run):
    """Reported: each replica's count is taken for all of them."""

    class Rows(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="rows")
            self.count = self.add_weight(
                shape=(), initializer="zeros", dtype="int32"
            )

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.count.assign_add(ops.shape(y_pred)[0])

        def reset_state(self):
            self.count.assign(0)

        def result(self):
            return ops.cast(self.count, "float64")

    x, y = reals(ROWS, 5), reals(ROWS, 1)
    with run.scope():
        model = small_net()
        model.compile("sgd", "mse", metrics=[Rows()])
    run.fit(model, x, y)
    run.keep(logs=model.evaluate(x, y, batch_size=BATCH_SIZE, verbose=0))


@report("keras-team/keras", 19891)
def loss_of_another_number_of_replicas(run):
    """Reported: `evaluate` and `fit` depend on the number of replicas."""
    x, y = reals(ROWS, 1), reals(ROWS, 10)
    with run.scope():
        model = keras.Sequential([keras.Input((1,)), layers.Dense(10)])
        model.compile("sgd", "mse")
    before = model.evaluate(x, y, batch_size=ROWS, verbose=0)
    run.fit(model, x, y, batch_size=ROWS)
    run.keep(before=before, after=model.predict(x, verbose=0))


@report("keras-team/tf-keras", 505)
def metric_outside_of_a_step(run):
    """Reported: its update raises in the scope."""
    with run.scope():
        mean = keras.metrics.Mean()
        mean.update_state(reals(7))
        mean.update_state(reals(4, seed=1))
        run.keep(mean=mean.result())


@report("tensorflow/tensorflow", 37561)
def metric_of_edit_distances(run):
    """Reported: a metric of whole numbers, which decodes, gets stuck."""

    class Words(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="words")
            self.total = self.add_weight(
                shape=(), initializer="zeros", dtype="int32"
            )
            self.count = self.add_weight(
                shape=(), initializer="zeros", dtype="int32"
            )

        def update_state(self, y_true, y_pred, sample_weight=None):
            rows = tf.shape(y_pred)[0]
            decoded, _ = tf.nn.ctc_greedy_decoder(
                tf.transpose(y_pred, [1, 0, 2]),
                tf.fill([rows], tf.shape(y_pred)[1]),
            )
            wanted = tf.sparse.from_dense(tf.cast(y_true, "int64"))
            distances = tf.edit_distance(decoded[0], wanted, normalize=False)
            wrong = tf.reduce_sum(tf.cast(distances > 0, "int32"))
            self.total.assign_add(rows - wrong)
            self.count.assign_add(rows)

        def result(self):
            return self.total / self.count

    def probable(y_true, y_pred):
        return -ops.mean(ops.log_softmax(y_pred)[:, :4, 0], axis=-1)

    with run.scope():
        model = keras.Sequential(
            [keras.Input((8, 3)), layers.GRU(4, return_sequences=True)]
        )
        model.compile(keras.optimizers.Adam(0.01), probable, metrics=[Words()])
    run.fit(model, reals(ROWS, 8, 3), integers(3, ROWS, 4, lowest=1))


@report("tensorflow/tensorflow", 35093)
def loss_that_weighs_rivals(run):
    """Reported: a loss of one's own works on one device only."""

    def hardest(y_true, y_pred):
        rivals = (1 - y_true) * ops.softmax(-1e9 * y_true - y_pred)
        own = ops.sum(y_true * y_pred, axis=1)
        return ops.mean(own - ops.sum(rivals * y_pred, axis=1))

    labels = np.eye(3)[integers(3, ROWS)]
    with run.scope():
        model = small_net(3)
        model.compile(keras.optimizers.Adam(0.01), hardest)
    run.fit(model, reals(ROWS, 5), labels)


@report("tensorflow/tensorflow", 55321)
def loss_that_divides_by_the_batch(run):
    """Reported: on x devices the loss is an x-th."""

    class Sum(keras.losses.Loss):
        def call(self, y_true, y_pred):
            rows = ops.mean(ops.abs(y_true - y_pred), axis=-1)
            return ops.sum(rows) / BATCH_SIZE

    with run.scope():
        model = small_net(4)
        model.compile(keras.optimizers.SGD(0.1), Sum())
    run.fit(model, reals(ROWS, 5), reals(ROWS, 4))


@report("tensorflow/tensorflow", 41773)
def batches_that_are_trained_one_by_one(run):
    """Reported: `train_on_batch` needs another context."""
    x, y = reals(ROWS, 5), integers(3, ROWS)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH_SIZE)
    with run.scope():
        model = small_net(3)
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=False,
        )
        run.watch(model)
        logs = [model.train_on_batch(*batch) for batch in data]
    run.keep(logs=np.array(logs))


@report("keras-team/keras", 17429)
def gradients_of_several_batches(run):
    """Reported: `merge_call` within a condition."""

    class Accumulating(keras.Model):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner
            self.step = self.add_weight(
                shape=(), dtype="int32", initializer="zeros", trainable=False
            )
            self.sums = [
                self.add_weight(
                    shape=variable.shape, initializer="zeros", trainable=False
                )
                for variable in inner.trainable_variables
            ]

        def call(self, x):
            return self.inner(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x))
            gradients = tape.gradient(loss, self.inner.trainable_variables)
            for total, gradient in zip(self.sums, gradients):
                total.assign_add(gradient)
            self.step.assign_add(1)
            tf.cond(self.step % 2 == 0, self.apply, lambda: None)
            return {"error": loss}

        def apply(self):
            self.optimizer.apply(
                [total / 2 for total in self.sums],
                self.inner.trainable_variables,
            )
            for total in self.sums:
                total.assign(ops.zeros_like(total))

    with run.scope():
        model = Accumulating(small_net())
        model.compile(keras.optimizers.Adam(0.01), "mse")
    run.fit(model, reals(ROWS, 5), reals(ROWS, 1))


@report("tensorflow/tensorflow", 72686)
def loop_of_ones_own(run):
    """Reported: `apply_gradients` gets stuck."""
    x, y = reals(24, 5), reals(24, 1)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH_SIZE)
    with run.scope():
        strategy = tf.distribute.get_strategy()
        model, optimizer = small_net(), keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
        run.watch(model)
        data = strategy.experimental_distribute_dataset(data)

        def step(x, y):
            with tf.GradientTape() as tape:
                errors = ops.mean((model(x) - y) ** 2, axis=1)
                loss = tf.nn.compute_average_loss(
                    errors, global_batch_size=BATCH_SIZE
                )
            variables = model.trainable_variables
            optimizer.apply_gradients(
                zip(tape.gradient(loss, variables), variables)
            )
            return loss

        @tf.function
        def train(x, y):
            losses = strategy.run(step, args=(x, y))
            return strategy.reduce("SUM", losses, axis=None)

        run.keep(losses=np.array([train(*batch) for batch in data]))


@report("tensorflow/tensorflow", 36845)
def loss_per_pixel_in_a_loop(run):
    """Reported: NaN from a cross-entropy without reduction."""
    x, y = images(12, 6, 6, 3), integers(3, 12, 6, 6)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH_SIZE)
    with run.scope():
        strategy = tf.distribute.get_strategy()
        model = keras.Sequential(
            [
                keras.Input((6, 6, 3)),
                layers.Conv2D(4, 3, padding="same", activation="relu"),
                layers.Conv2D(3, 1),
            ]
        )
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
        per_pixel = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )
        run.watch(model)
        data = strategy.experimental_distribute_dataset(data)

        def step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.nn.compute_average_loss(
                    ops.mean(per_pixel(y, model(x)), axis=(1, 2)),
                    global_batch_size=BATCH_SIZE,
                )
            variables = model.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
            return loss

        @tf.function
        def train(x, y):
            losses = strategy.run(step, args=(x, y))
            return strategy.reduce("SUM", losses, axis=None)

        run.keep(losses=np.array([train(*batch) for batch in data]))


@report("tensorflow/tensorflow", 25416)
def critic_with_a_penalty(run):
    """Reported: the rows of the mixture don't fit on several devices."""

    class Critic(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = small_net(features=4)
            self.maker = small_net(4, features=2)
            self.seeds = keras.random.SeedGenerator(3)

        def call(self, x):
            return self.inner(x)

        def train_step(self, real):
            rows = ops.shape(real)[0]
            noise = keras.random.normal((rows, 2), seed=self.seeds)
            mixed = keras.random.uniform((rows, 1), seed=self.seeds)
            made = self.maker(noise)
            middle = mixed * real + (1 - mixed) * made
            with tf.GradientTape() as tape:
                with tf.GradientTape() as inner:
                    inner.watch(middle)
                    score = self.inner(middle)
                slopes = inner.gradient(score, middle)
                lengths = ops.sqrt(ops.sum(slopes**2, axis=1) + 1e-12)
                loss = ops.mean(self.inner(made)) - ops.mean(self.inner(real))
                loss += 10 * ops.mean((lengths - 1) ** 2)
            variables = self.inner.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"error": loss}

    with run.scope():
        model = Critic()
        model.compile(keras.optimizers.SGD(0.02))
        model(np.zeros([1, 4]))
    run.fit(model, reals(ROWS, 4))


@report("keras-team/keras", 18666, precision="float32")
def scaled_losses(run):
    """Reported: `merge_call` within the condition of the loss scale."""
    with run.scope():
        model = small_net()
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.05), initial_scale=2.0**127
        )
        model.compile(optimizer, "mse")
    run.fit(model, reals(ROWS, 5), 8 * reals(ROWS, 1))
    scale = keras.ops.convert_to_numpy(optimizer.dynamic_scale)
    run.keep(scale=np.log2(scale))


@report("keras-team/keras", 21366, precision="float32")
def scaled_losses_under_xla(run):
    """Reported: the loss scale crashes with `jit_compile=True`."""
    with run.scope():
        model = small_net()
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.Adam(0.01), initial_scale=2.0**127
        )
        model.compile(optimizer, "mse")
    run.fit(model, reals(ROWS, 5), 8 * reals(ROWS, 1), jit_compile=True)
