"""The default of the convnet recipe: generated images, and a network.

A user's own modules look like this one: a class or function of keywords that
makes a Keras model, and one that returns data.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np


@keras.saving.register_keras_serializable("kerasmgpu")
class ConvNet(keras.Model):
    """Convolutions of `filters` and pooling, then the mean over the image.

    Input: `[batch, height, width, channels]` or `[batch, height, width]`; the
    network divides it by `scale`. Output: probabilities, `[batch, num_classes]`.
    """

    def __init__(
        self,
        filters: Sequence[int],
        num_classes: int,
        scale: float = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.filters = list(filters)
        self.num_classes = num_classes
        self.scale = scale
        layers = keras.layers
        self.network = keras.Sequential()
        for count in self.filters:
            self.network.add(
                layers.Conv2D(count, 3, 1, "same", activation="relu")
            )
            self.network.add(layers.MaxPooling2D())
        self.network.add(layers.GlobalAveragePooling2D())
        self.network.add(layers.Dense(num_classes, activation="softmax"))

    def call(self, images: Any) -> Any:
        images = keras.ops.cast(images, self.compute_dtype) / self.scale
        if len(images.shape) == 3:
            images = keras.ops.expand_dims(images, -1)
        return self.network(images)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "num_classes": self.num_classes,
            "scale": self.scale,
        }


def gratings(
    num_images: int,
    num_classes: int = 8,
    size: int = 24,
    noise: float = 0.5,
    seed: int = 0,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Draws stripes whose angle is the class.

    Phase and width of the stripes are random, so no pixel alone predicts the
    angle: a small convolutional model learns it, a linear one doesn't. `noise`
    is the standard deviation of the noise; the stripes have amplitude 1.

    Returns `"training"`, with `num_images` images, and `"validation"`, with a
    quarter as many: images `[rows, size, size, 1]` (float32) and classes
    `[rows]` (int32) in each.
    """
    random = np.random.default_rng(seed)
    total = num_images + num_images // 4
    classes = random.integers(num_classes, size=total)
    angle = (np.pi * classes / num_classes)[:, None, None]
    period = random.uniform(4, 8, (total, 1, 1))
    phase = random.uniform(0, 2 * np.pi, (total, 1, 1))
    down, right = np.mgrid[:size, :size]
    across = np.cos(angle) * right + np.sin(angle) * down
    images = np.sin(2 * np.pi * across / period + phase)
    images += random.normal(scale=noise, size=images.shape)
    images = images[..., None].astype("float32")
    classes = classes.astype("int32")
    return {
        "training": (images[:num_images], classes[:num_images]),
        "validation": (images[num_images:], classes[num_images:]),
    }
