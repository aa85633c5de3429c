"""Programs after keras.io's computer vision examples: other tasks."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals, sentences
from benchmarks.exactness.keras_io.run import ROWS
from benchmarks.exactness.registry import example


@example("examples/vision/captcha_ocr", precision="float32")
def ocr(run):
    """The loss is a layer between the prediction and the labels."""

    class Ctc(layers.Layer):
        def call(self, labels, predicted):
            ones = ops.ones((ops.shape(labels)[0],), dtype="int32")
            loss = keras.ops.ctc_loss(
                labels, predicted, ones * 3, ones * 8, mask_index=0
            )
            self.add_loss(ops.mean(loss))
            return predicted

    with run.scope():
        pictures = keras.Input((8, 6, 1), name="picture")
        labels = keras.Input((3,), dtype="int32", name="label")
        x = layers.Conv2D(4, 3, activation="relu", padding="same")(pictures)
        x = layers.Reshape((8, -1))(layers.MaxPooling2D((1, 2))(x))
        x = layers.Dense(6, activation="relu")(x)
        x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(x)
        x = Ctc(name="loss")(labels, layers.Dense(5)(x))
        model = keras.Model([pictures, labels], x)
        model.compile(keras.optimizers.Adam(0.01))
    data = {
        "picture": images(ROWS, 8, 6, 1),
        "label": integers(5, ROWS, 3, lowest=1),
    }
    run.fit(model, data)


@example("examples/vision/image_captioning")
def image_captioning(run):
    """Two captions per picture; losses and accuracies count words only."""

    class Captioner(keras.Model):
        def __init__(self):
            super().__init__()
            self.see = keras.Sequential(
                [
                    keras.Input((8, 8, 3)),
                    layers.Conv2D(6, 4, strides=4),
                    layers.Reshape((4, 6)),
                    layers.LayerNormalization(),
                ]
            )
            self.embed = layers.Embedding(9, 6)
            self.listen = layers.MultiHeadAttention(2, 3, dropout=0.1)
            self.look = layers.MultiHeadAttention(2, 3)
            self.out = layers.Dense(9)
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.acc_tracker = keras.metrics.Mean(name="acc")

        @property
        def metrics(self):
            return [self.loss_tracker, self.acc_tracker]

        def losses_of(self, pictures, caption, training):
            seen = self.see(pictures, training=training)
            words, wanted = caption[:, :-1], caption[:, 1:]
            mask = ops.cast(ops.not_equal(wanted, 0), seen.dtype)
            x = self.embed(words)
            x += self.listen(x, x, use_causal_mask=True, training=training)
            scores = self.out(x + self.look(x, seen, training=training))
            loss = self.loss(wanted, scores) * mask
            right = ops.cast(
                ops.equal(ops.cast(wanted, "int64"), ops.argmax(scores, -1)),
                seen.dtype,
            )
            return (
                ops.sum(loss) / ops.sum(mask),
                ops.sum(right * mask) / ops.sum(mask),
            )

        def train_step(self, data):
            pictures, captions = data
            for i in range(2):
                with tf.GradientTape() as tape:
                    loss, right = self.losses_of(pictures, captions[:, i], True)
                variables = self.trainable_variables
                self.optimizer.apply_gradients(
                    zip(tape.gradient(loss, variables), variables)
                )
                self.loss_tracker.update_state(loss)
                self.acc_tracker.update_state(right)
            return {m.name: m.result() for m in self.metrics}

        def test_step(self, data):
            pictures, captions = data
            loss, right = self.losses_of(pictures, captions[:, 0], False)
            self.loss_tracker.update_state(loss)
            self.acc_tracker.update_state(right)
            return {m.name: m.result() for m in self.metrics}

    x = images(ROWS, 8, 8, 3)
    words = sentences(9, 2 * ROWS, 6).reshape(ROWS, 2, 6)
    words[..., 1] = 1
    with run.scope():
        model = Captioner()
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction=None
            ),
        )
    run.fit(model, x, words, validation_data=(x, words))


@example("examples/vision/pointnet")
def pointnet(run):
    """Points are turned by a learned matrix that is kept orthogonal."""

    class Orthogonal(keras.regularizers.Regularizer):
        def __call__(self, x):
            x = ops.reshape(x, (-1, 3, 3))
            squares = ops.einsum("bij,bkj->bik", x, x)
            off = squares - ops.eye(3, dtype=x.dtype)
            return ops.sum(0.001 * ops.square(off))

    def convolve(x, units):
        x = layers.Conv1D(units, 1)(x)
        return layers.Activation("relu")(layers.BatchNormalization()(x))

    with run.scope():
        inputs = keras.Input((10, 3))
        x = layers.GlobalMaxPooling1D()(convolve(inputs, 6))
        matrix = layers.Dense(
            9,
            kernel_initializer="zeros",
            bias_initializer=keras.initializers.Constant(np.eye(3).flatten()),
            activity_regularizer=Orthogonal(),
        )(x)
        x = layers.Dot(axes=(2, 1))([inputs, layers.Reshape((3, 3))(matrix)])
        x = layers.GlobalMaxPooling1D()(convolve(x, 6))
        x = layers.Dropout(0.3)(layers.Dense(6, activation="relu")(x))
        model = keras.Model(inputs, layers.Dense(3, activation="softmax")(x))
        model.compile(
            keras.optimizers.Adam(1e-3),
            "sparse_categorical_crossentropy",
            metrics=["sparse_categorical_accuracy"],
        )
    run.fit(model, reals(ROWS, 10, 3), integers(3, ROWS))


@example("examples/vision/nerf")
def nerf(run):
    """Colours and densities along rays become pixels; PSNR is measured."""

    class Nerf(keras.Model):
        def __init__(self):
            super().__init__()
            self.field = keras.Sequential(
                [
                    keras.Input((5, 5, 4, 6)),
                    layers.Dense(8, activation="relu"),
                    layers.Dense(8, activation="relu"),
                    layers.Dense(4),
                ]
            )
            self.loss_tracker = keras.metrics.Mean(name="loss")
            self.psnr = keras.metrics.Mean(name="psnr")

        @property
        def metrics(self):
            return [self.loss_tracker, self.psnr]

        def train_step(self, data):
            pictures, (rays, depths) = data
            with tf.GradientTape() as tape:
                made = self.field(rays)
                colour = ops.sigmoid(made[..., :3])
                density = ops.relu(made[..., 3])
                gaps = ops.concatenate(
                    [
                        depths[..., 1:] - depths[..., :-1],
                        ops.full_like(depths[..., :1], 1e10),
                    ],
                    axis=-1,
                )
                alpha = 1.0 - ops.exp(-density * gaps)
                through = tf.math.cumprod(
                    1.0 - alpha + 1e-10, axis=-1, exclusive=True
                )
                pixels = ops.sum((alpha * through)[..., None] * colour, axis=-2)
                loss = self.loss(pictures, pixels)
            variables = self.field.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            self.loss_tracker.update_state(loss)
            self.psnr.update_state(tf.image.psnr(pictures, pixels, 1.0))
            return {m.name: m.result() for m in self.metrics}

    depths = np.sort(images(ROWS, 5, 5, 4, seed=2))
    data = tf.data.Dataset.from_tensor_slices(
        (images(ROWS, 5, 5, 3), (reals(ROWS, 5, 5, 4, 6), depths))
    )
    with run.scope():
        model = Nerf()
        model.compile(
            keras.optimizers.Adam(0.01), keras.losses.MeanSquaredError()
        )
    run.fit(model, data.batch(6, drop_remainder=True))


@example("examples/vision/zero_dce")
def zero_dce(run):
    """Curves brighten dark pictures; four losses need no labels."""

    class ZeroDce(keras.Model):
        def __init__(self):
            super().__init__()
            self.curves = keras.Sequential(
                [
                    keras.Input((8, 8, 3)),
                    layers.Conv2D(4, 3, activation="relu", padding="same"),
                    layers.Conv2D(6, 3, activation="tanh", padding="same"),
                ]
            )

        def losses_of(self, x):
            curves = self.curves(x)
            made = x
            for curve in ops.split(curves, 2, axis=-1):
                made = made + curve * (ops.square(made) - made)
            red, green, blue = ops.split(ops.mean(made, (1, 2)), 3, axis=-1)
            colour = ops.sqrt(
                (red - green) ** 2 + (red - blue) ** 2 + (green - blue) ** 2
            )
            grey = ops.mean(made, axis=3, keepdims=True)
            exposed = ops.average_pool(grey, 4, 4, "valid") - 0.6
            rough = sum(
                map(ops.sum, map(ops.square, tf.image.image_gradients(curves)))
            )
            count = ops.cast(ops.shape(x)[0], x.dtype)
            return {
                "colour": 5.0 * ops.mean(colour),
                "exposure": 10.0 * ops.mean(ops.square(exposed)),
                "rough": 200.0 * rough / count / 384.0,
            }

        def train_step(self, data):
            with tf.GradientTape() as tape:
                losses = self.losses_of(data)
                total = sum(losses.values())
            variables = self.curves.trainable_weights
            self.optimizer.apply_gradients(
                zip(tape.gradient(total, variables), variables)
            )
            return {"total": total, **losses}

        def test_step(self, data):
            return self.losses_of(data)

    x = 0.3 * images(ROWS, 8, 8, 3)
    batches = tf.data.Dataset.from_tensor_slices(x).batch(
        8, drop_remainder=True
    )
    with run.scope():
        model = ZeroDce()
        model.compile(keras.optimizers.Adam(1e-3))
    run.fit(model, batches, validation_data=batches)
