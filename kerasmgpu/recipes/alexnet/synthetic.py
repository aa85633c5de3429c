"""Networks that make up their own images, to measure computing alone."""

import statistics
from typing import Any

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

    The input is a batch of numbers: no pixel is decoded or copied to the
    device.
    """

    def __init__(self, image_shape: tuple[int, ...], **kwargs: Any) -> None:
        super().__init__(**{"trainable": False, **kwargs})
        self.image_shape = tuple(image_shape)

    def build(self, input_shape: Any) -> None:
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

    def call(self, numbers: Any) -> Any:
        return keras.ops.take(
            self._images, keras.ops.mod(numbers, _IMAGES), axis=0
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "image_shape": self.image_shape}


def in_front_of(
    network: keras.Model, image_shape: tuple[int, ...]
) -> keras.Model:
    """A model from numbers of images to the network's outputs."""
    numbers = keras.Input((), dtype="int32")
    images = ImageBank(image_shape)(numbers)
    return keras.Model(numbers, network(images), name=network.name)


class SyntheticBatches:
    """One batch of numbers and arbitrary classes, in place of `ImageBatches`."""

    def __init__(self, global_batch_size: int, num_classes: int) -> None:
        self._numbers = tf.range(global_batch_size)
        self._classes = tf.one_hot(self._numbers % num_classes, num_classes)

    def training(self, first_step: int = 0) -> tf.data.Dataset:
        """Endless batches: int32 `[rows]`, one-hot float32 `[rows, classes]`."""
        del first_step  # All are the same.
        batch = (self._numbers, self._classes)
        return tf.data.Dataset.from_tensors(batch).repeat()

    def held_out(self) -> None:
        """No data: random images can't be recognised."""


def examples_per_second(
    model: keras.Model, global_batch_size: int, num_classes: int
) -> float:
    """Speed of a model of `in_front_of`, without tracing."""
    history = model.fit(
        SyntheticBatches(global_batch_size, num_classes).training(),
        epochs=_EPOCHS,
        steps_per_epoch=_STEPS,
        callbacks=[callbacks.ThroughputLogger()],
        shuffle=False,
        verbose=0,
    ).history
    return statistics.median(history["examples_per_second"])
