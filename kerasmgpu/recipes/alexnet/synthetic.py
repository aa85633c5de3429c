"""Networks that generate their own images, to measure compute alone."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

_IMAGES = 64  # Kept on each device; a batch repeats them.


@keras.saving.register_keras_serializable(package="kerasmgpu")
class ImageBank(keras.layers.Layer):
    """Random images that stay on the device, looked up by index.

    The input is a batch of indices: no pixel is decoded or copied to the
    device.
    """

    def __init__(self, image_shape: tuple[int, ...], **kwargs: Any) -> None:
        super().__init__(**{"trainable": False, **kwargs})
        self.image_shape = tuple(image_shape)

    def build(self, input_shape: Any) -> None:
        shape = (_IMAGES, *self.image_shape)
        images = np.random.default_rng(0).integers(0, 256, shape)
        self._images = self.add_weight(
            name="images",
            shape=shape,
            dtype="uint8",
            initializer=lambda _, dtype=None: keras.ops.cast(images, dtype),
            trainable=False,
        )

    def call(self, numbers: Any) -> Any:
        return keras.ops.take(self._images, numbers % _IMAGES, axis=0)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "image_shape": self.image_shape}


def in_front_of(network: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    """Returns a model that maps indices of images to the network's outputs."""
    numbers = keras.Input((), dtype="int32")
    outputs = network(ImageBank(shape)(numbers))
    return keras.Model(numbers, outputs, name=network.name)


def batches(global_batch_size: int, num_classes: int) -> tf.data.Dataset:
    """Endless batches: int32 `[rows]`, one-hot float32 `[rows, classes]`.

    Indices of images and arbitrary classes, the same in each batch.
    """
    numbers = tf.range(global_batch_size)
    batch = numbers, tf.one_hot(numbers % num_classes, num_classes)
    return tf.data.Dataset.from_tensors(batch).repeat()
