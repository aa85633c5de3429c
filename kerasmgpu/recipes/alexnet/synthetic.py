"""A network that makes up its own images: what is left is computing alone."""

import statistics

import keras
import numpy as np
import tensorflow as tf

from kerasmgpu import callbacks

# Images that are kept on each device; a batch repeats them.
_IMAGES = 64
_EPOCHS = 3
_STEPS = 20


@keras.saving.register_keras_serializable(package="kerasmgpu")
class ImageBank(keras.layers.Layer):
    """Random images that stay on the device, looked up by number.

    A batch of numbers goes in, 4 bytes each; no pixel is decoded or copied to
    the device. This is how a network's speed is measured without its input.
    """

    def __init__(self, image_shape, **kwargs):
        super().__init__(**{"trainable": False, **kwargs})
        self.image_shape = tuple(image_shape)

    def build(self, input_shape):
        images = np.random.default_rng(0).integers(
            0, 256, (_IMAGES, *self.image_shape)
        )
        self._images = self.add_weight(
            name="images",
            shape=images.shape,
            dtype="uint8",
            initializer=lambda shape, dtype=None: keras.ops.convert_to_tensor(
                images, dtype
            ),
            trainable=False,
        )

    def call(self, numbers):
        return keras.ops.take(
            self._images, keras.ops.mod(numbers, _IMAGES), axis=0
        )

    def get_config(self):
        return {**super().get_config(), "image_shape": self.image_shape}


def in_front_of(network, image_shape):
    """A `keras.Model` from numbers of images to the network's outputs."""
    numbers = keras.Input((), dtype="int32")
    images = ImageBank(image_shape)(numbers)
    return keras.Model(numbers, network(images), name=network.name)


class SyntheticBatches:
    """One batch of numbers and made-up classes, in place of `ImageBatches`."""

    def __init__(self, global_batch_size, num_classes):
        self._numbers = tf.range(global_batch_size)
        self._classes = tf.one_hot(self._numbers % num_classes, num_classes)

    def training(self, first_step=0):
        """Endless batches: int32 `[rows]`, one-hot float32 `[rows, classes]`."""
        del first_step  # All are the same.
        batch = (self._numbers, self._classes)
        return tf.data.Dataset.from_tensors(batch).repeat()

    def held_out(self):
        """Nothing: what is made up can't be recognised."""
        return None


def examples_per_second(model, global_batch_size, num_classes):
    """Speed of a model of `in_front_of`, tracing left out."""
    history = model.fit(
        SyntheticBatches(global_batch_size, num_classes).training(),
        epochs=_EPOCHS,
        steps_per_epoch=_STEPS,
        callbacks=[callbacks.ThroughputLogger()],
        shuffle=False,
        verbose=0,
    ).history
    return statistics.median(history["examples_per_second"])
