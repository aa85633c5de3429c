"""Networks on pictures, volumes and sounds that are not Keras's own."""

import keras
from keras import layers, ops

from benchmarks.exactness.data import images, integers, reals
from benchmarks.exactness.models.fitted import fitted
from benchmarks.exactness.registry import model


def pixel_loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def twice(x, units):
    for _ in range(2):
        x = layers.Conv2D(units, 3, padding="same", use_bias=False)(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
    return x


@model("pictures", in_suite=True, evaluates=True, predicts=True)
def u_net():
    inputs = keras.Input((8, 8, 3))
    first = twice(inputs, 3)
    second = twice(layers.MaxPooling2D()(first), 4)
    x = twice(layers.Dropout(0.2, seed=1)(layers.MaxPooling2D()(second)), 5)
    x = layers.Conv2DTranspose(4, 2, strides=2)(x)
    x = twice(layers.Concatenate()([x, second]), 4)
    x = layers.UpSampling2D(interpolation="bilinear")(x)
    x = twice(layers.Concatenate()([x, first]), 3)
    result = keras.Model(inputs, layers.Conv2D(3, 1)(x))
    result.compile(
        keras.optimizers.Adam(0.01),
        pixel_loss(),
        metrics=["accuracy", keras.metrics.MeanIoU(3, sparse_y_pred=False)],
    )
    return fitted(result, images(9, 8, 8, 3), integers(3, 9, 8, 8))


@model("pictures")
def dilated_segmentation():
    """Atrous pyramid: dilations, a pooled branch that is made large again."""
    inputs = keras.Input((8, 8, 3))
    x = layers.SeparableConv2D(4, 3, padding="same")(inputs)
    branches = [
        layers.Conv2D(3, 3, padding="same", dilation_rate=rate)(x)
        for rate in (1, 2, 3)
    ]
    pooled = layers.GlobalAveragePooling2D(keepdims=True)(x)
    pooled = layers.Conv2D(3, 1)(pooled)
    branches.append(layers.UpSampling2D(8, interpolation="bilinear")(pooled))
    x = layers.Concatenate()(branches)
    x = layers.Resizing(16, 16, interpolation="bilinear")(x)
    result = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
    result.compile(keras.optimizers.Adam(0.01), "dice")
    masks = integers(2, 9, 16, 16, 1).astype(keras.config.floatx())
    return fitted(result, images(9, 8, 8, 3), masks)


@model("pictures")
def super_resolution():
    inputs = keras.Input((4, 4, 1))
    x = layers.Conv2D(8, 3, padding="same", activation="tanh")(inputs)
    x = layers.Conv2D(4, 3, padding="same")(x)
    x = ops.reshape(x, (-1, 4, 4, 2, 2))
    x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4)), (-1, 8, 8, 1))
    result = keras.Model(inputs, x)
    result.compile(keras.optimizers.Adam(0.01), "mae")
    return fitted(result, images(9, 4, 4, 1), images(9, 8, 8, 1, seed=1))


@model("pictures", precision="float32")
def volumes():
    result = keras.Sequential(
        [
            keras.Input((6, 6, 6, 1)),
            layers.Conv3D(3, 3, use_bias=False),
            layers.MaxPooling3D(2),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv3DTranspose(2, 2),
            layers.GlobalAveragePooling3D(),
            layers.Dense(1, activation="sigmoid"),
        ]
    )
    result.compile(keras.optimizers.Adam(0.01), "binary_focal_crossentropy")
    classes = integers(2, 9, 1).astype(keras.config.floatx())
    return fitted(result, reals(9, 6, 6, 6, 1), classes)


@model("pictures")
def wavenet():
    """Dilated causal convolutions with gates over one axis."""
    inputs = keras.Input((12, 1))
    x = layers.Conv1D(4, 2, padding="causal")(inputs)
    for rate in (1, 2, 4):
        one = layers.Conv1D(
            4, 2, padding="causal", dilation_rate=rate, activation="tanh"
        )(x)
        two = layers.Conv1D(
            4, 2, padding="causal", dilation_rate=rate, activation="sigmoid"
        )(x)
        x = x + layers.Conv1D(4, 1)(one * two)
    result = keras.Model(inputs, layers.Conv1D(1, 1)(x))
    result.compile(keras.optimizers.Adam(0.01), "huber")
    x = reals(9, 13, 1)
    return fitted(result, x[:, :-1], x[:, 1:])


@model("pictures")
def spectra_of_sounds():
    inputs = keras.Input((64, 1))
    x = layers.STFTSpectrogram(
        frame_length=16, frame_step=8, fft_length=16, trainable=False
    )(inputs)
    x = layers.GRU(4)(x)
    result = keras.Model(inputs, layers.Dense(3)(x))
    result.compile(keras.optimizers.Adam(0.01), pixel_loss())
    return fitted(result, reals(9, 64, 1), integers(3, 9))


class Windows(layers.Layer):
    """Attention within windows that a roll has shifted, as in Swin."""

    def build(self, shape):
        self.attention = layers.MultiHeadAttention(2, 2)
        self.attention.build((None, 4, shape[-1]), (None, 4, shape[-1]))

    def call(self, inputs):
        units = inputs.shape[-1]
        x = ops.roll(inputs, (-1, -1), axis=(1, 2))
        x = ops.reshape(x, (-1, 2, 2, 2, 2, units))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, 4, units))
        x = ops.reshape(self.attention(x, x), (-1, 2, 2, 2, 2, units))
        x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, 4, 4, units))
        return inputs + ops.roll(x, (1, 1), axis=(1, 2))


@model("pictures")
def shifted_windows():
    result = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 2, strides=2),
            layers.LayerNormalization(),
            Windows(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3),
        ]
    )
    result.compile(keras.optimizers.AdamW(0.01), pixel_loss())
    return fitted(result, images(9, 8, 8, 3), integers(3, 9))


@model("pictures", precision="float32")
def augmented_pictures():
    """Keras's layers that change pictures, in front of a small network."""
    result = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.RandomFlip(seed=1),
            layers.RandomRotation(0.2, seed=2),
            layers.RandomZoom(0.2, seed=3),
            layers.RandomTranslation(0.2, 0.2, seed=4),
            layers.RandomContrast(0.3, value_range=(0, 1), seed=5),
            layers.RandomBrightness(0.3, value_range=(0, 1), seed=6),
            layers.RandomCrop(6, 6, seed=7),
            layers.CenterCrop(5, 5),
            layers.Conv2D(3, 3),
            layers.SpatialDropout2D(0.3, seed=8),
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    result.compile(keras.optimizers.SGD(0.05), pixel_loss())
    return fitted(result, images(9, 8, 8, 3), integers(3, 9))


@model("pictures")
def graph_of_points():
    """The nearest of all points of the same row, by `top_k` and `take`."""
    inputs = keras.Input((6, 2))
    apart = inputs[:, :, None] - inputs[:, None]
    _, near = ops.top_k(-ops.sum(apart**2, axis=-1), 3)
    chosen = ops.one_hot(near, 6, dtype=keras.config.floatx())
    around = ops.einsum("bpkq,bqf->bpkf", chosen, layers.Dense(4)(inputs))
    x = layers.Dense(4, activation="relu")(ops.max(around, axis=2))
    result = keras.Model(inputs, layers.Dense(3)(ops.max(x, axis=1)))
    result.compile(keras.optimizers.Adam(0.01), pixel_loss())
    return fitted(result, reals(9, 6, 2), integers(3, 9))
