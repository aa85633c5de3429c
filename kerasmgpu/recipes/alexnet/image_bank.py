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

    Args:
        image_shape: Height, width and channels.
        **kwargs: Those of `keras.layers.Layer`.

    Example:

    ```python
    images = ImageBank((224, 224, 3))(np.arange(256))  # [256, 224, 224, 3]
    ```
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
    """Batches of numbers and made-up classes, one and the same.

    It stands in for `image_batches.ImageBatches`.

    Args:
        global_batch_size: Integer.
        num_classes: Integer.
    """

    def __init__(self, global_batch_size, num_classes):
        self._numbers = tf.range(global_batch_size)
        self._classes = tf.one_hot(self._numbers % num_classes, num_classes)

    def training(self, first_step=0):
        """Endless batches: int32 `[rows]`, one-hot float32 `[rows, classes]`.

        Args:
            first_step: Step to begin with; all are the same. Defaults to `0`.
        """
        del first_step
        batch = (self._numbers, self._classes)
        return tf.data.Dataset.from_tensors(batch).repeat()

    def held_out(self):
        """Nothing: what is made up can't be recognised."""
        return None


def examples_per_second(model, global_batch_size, num_classes):
    """Trains a model with an `ImageBank` for a moment, to measure its speed.

    Args:
        model: Compiled `keras.Model` of `in_front_of`.
        global_batch_size: Integer.
        num_classes: Integer.

    Returns:
        Float, the median of three epochs of 20 steps; tracing is left out.
    """
    history = model.fit(
        SyntheticBatches(global_batch_size, num_classes).training(),
        epochs=_EPOCHS,
        steps_per_epoch=_STEPS,
        callbacks=[callbacks.ThroughputLogger()],
        shuffle=False,
        verbose=0,
    ).history
    return statistics.median(history["examples_per_second"])
