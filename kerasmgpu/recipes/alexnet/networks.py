"""AlexNet, ResNet-50 and WideResNet-28 from Keras layers, for any image size.

Each takes raw pixels, uint8 `[rows, height, width, channels]`, and returns
logits in float32, `[rows, classes]`. Weight decay applies to kernels only, not
to biases and the scales of batch normalisation (Goyal et al., arXiv:1706.02677,
section 5.3).
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import keras

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_data, images

MIN_IMAGE_SIZES = {"alexnet": 8, "resnet50": 32, "wide_resnet28": 8}
"""Name of a network to the least height and width that it takes."""

WIDTHS = {"alexnet": 0.25, "resnet50": 1.0, "wide_resnet28": 10.0}
"""Default widths: a small AlexNet, and the two published networks."""

Shape = tuple[int, int, int]  # Height, width and channels.


def image_shape(settings: SimpleNamespace, data: image_data.ImageData) -> Shape:
    """Shape of the network's inputs."""
    file_shape = images.FILE_SIZE, images.FILE_SIZE, 3
    height, _, channels = data.image_shape or file_shape
    size = settings.image_size or height
    least = MIN_IMAGE_SIZES[settings.network]
    if size < least:
        raise InputError(
            f"{settings.network} takes images of {least} pixels and more. "
            f"Received: {size}; give --image_size={least}"
        )
    return size, size, channels


def build(
    name: str,
    shape: Shape,
    num_classes: int,
    width: float,
    weight_decay: float = 0.0,
) -> keras.Model:
    """Builds one of the three networks.

    `width` is the factor of all layers' units: 1 is the published AlexNet and
    ResNet-50, k is WideResNet-28-k. Half of `weight_decay` times the sum of
    squared kernels is added to the loss.
    """
    builder = {
        "alexnet": alexnet,
        "resnet50": resnet50,
        "wide_resnet28": wide_resnet28,
    }[name]
    return builder(shape, num_classes, width, weight_decay)


def alexnet(
    shape: Shape,
    num_classes: int,
    width: float = 1.0,
    weight_decay: float = 0.0,
    filters: Sequence[int] = (64, 192, 384, 384, 256),
) -> keras.Model:
    """AlexNet with one tower.

    The default filters are those of TensorFlow's benchmarks (61.8 M parameters
    at 224 pixels and 1,000 classes); 64, 192, 384, 256, 256 are torchvision's
    (61.1 M), and 96, 256, 384, 384, 256 those of both towers of Krizhevsky et
    al. (NIPS 2012), fully connected (62.4 M). For images of less than 128
    pixels the first layer has a smaller kernel and no stride.
    """
    filters = [max(1, round(width * number)) for number in filters]
    units = max(1, round(width * 4096))
    settings = dict(
        kernel_regularizer=_penalty(weight_decay),
        kernel_initializer="he_normal",
        activation="relu",
    )
    convolution = functools.partial(
        keras.layers.Conv2D, padding="same", **settings
    )
    inputs, x = _pixels(shape)
    is_large = min(shape[:2]) >= 128
    if is_large:
        # 224 pixels and three at the edges give 55 positions.
        x = keras.layers.ZeroPadding2D(((1, 2), (1, 2)))(x)
        x = keras.layers.Conv2D(filters[0], 11, 4, **settings)(x)
    else:
        x = convolution(filters[0], 5)(x)
    pool = functools.partial(
        keras.layers.MaxPooling2D, 3, 2, "valid" if is_large else "same"
    )
    x = pool()(x)
    x = convolution(filters[1], 5)(x)
    x = pool()(x)
    for number in filters[2:]:
        x = convolution(number, 3)(x)
    x = pool()(x)
    x = keras.layers.Flatten()(x)
    for _ in range(2):
        x = keras.layers.Dense(units, **settings)(x)
        x = keras.layers.Dropout(0.5)(x)
    outputs = _logits(num_classes, weight_decay)(x)
    return keras.Model(inputs, outputs, name="alexnet")


def resnet50(
    shape: Shape, num_classes: int, width: float = 1, weight_decay: float = 0
) -> keras.Model:
    """ResNet-50 v1.5 (He et al., arXiv:1512.03385, and later practice).

    "v1.5" halves the resolution in the 3 × 3 convolution of a block rather
    than in the 1 × 1 before it. The last scale of each block begins with 0, so
    that blocks begin as the identity (Goyal et al., arXiv:1706.02677, 5.1).
    25.6 M parameters at 1,000 classes.
    """
    convolution = _convolution(weight_decay)
    inputs, x = _pixels(shape)
    x = convolution(max(1, round(64 * width)), 7, 2)(x)
    x = _normalised(x)
    x = keras.layers.MaxPooling2D(3, 2, "same")(x)
    for stage, num_blocks in enumerate((3, 4, 6, 3)):
        filters = max(1, round(64 * width * 2**stage))
        for block in range(num_blocks):
            stride = 2 if stage and not block else 1
            shortcut = x
            if not block:
                shortcut = convolution(4 * filters, 1)(_every(stride, x))
                shortcut = _batch_norm()(shortcut)
            x = _normalised(convolution(filters, 1)(x))
            x = _normalised(convolution(filters, 3, stride)(x))
            x = convolution(4 * filters, 1)(x)
            x = _batch_norm(gamma_initializer="zeros")(x)
            x = keras.layers.ReLU()(keras.layers.Add()([x, shortcut]))
    x = keras.layers.GlobalAveragePooling2D()(x)
    outputs = _logits(num_classes, weight_decay)(x)
    return keras.Model(inputs, outputs, name="resnet50")


def wide_resnet28(
    shape: Shape, num_classes: int, width: float = 10, weight_decay: float = 0
) -> keras.Model:
    """WideResNet-28-k (Zagoruyko and Komodakis, arXiv:1605.07146).

    36.5 M parameters at k = 10 and 10 classes. No dropout between the
    convolutions of a block.
    """
    convolution = _convolution(weight_decay)
    inputs, x = _pixels(shape)
    x = convolution(16, 3)(x)
    for group in range(3):
        filters = max(1, round(16 * width * 2**group))
        # The depth 28 is 6 n + 4 with n = 4 blocks in a group.
        for block in range(4):
            stride = 2 if group and not block else 1
            shortcut = x
            x = _normalised(x)
            if stride > 1 or shortcut.shape[-1] != filters:
                shortcut = convolution(filters, 1)(_every(stride, x))
            x = _normalised(convolution(filters, 3, stride)(x))
            x = convolution(filters, 3)(x)
            x = keras.layers.Add()([x, shortcut])
    x = keras.layers.GlobalAveragePooling2D()(_normalised(x))
    outputs = _logits(num_classes, weight_decay)(x)
    return keras.Model(inputs, outputs, name="wide_resnet28")


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Context of the policy `mixed_float16`, `mixed_bfloat16` or of none."""
    previous = keras.config.dtype_policy()
    if name != "none":
        keras.config.set_dtype_policy(f"mixed_{name}")
    try:
        yield
    finally:
        keras.config.set_dtype_policy(previous)


def _pixels(shape: Shape) -> tuple[Any, Any]:
    """Returns the input layer, and its pixels scaled to [-1, 1]."""
    inputs = keras.Input(shape, dtype="uint8")
    return inputs, keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)


def _logits(num_classes: int, weight_decay: float) -> keras.Layer:
    return keras.layers.Dense(
        num_classes,
        kernel_regularizer=_penalty(weight_decay),
        kernel_initializer=keras.initializers.RandomNormal(stddev=0.01),
        # Logits of half precision would round the loss.
        dtype="float32",
    )


def _convolution(weight_decay: float) -> Callable[..., keras.Layer]:
    """Convolution before a batch normalisation: no biases."""
    return functools.partial(
        keras.layers.Conv2D,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=_penalty(weight_decay),
    )


def _every(stride: int, x: Any) -> Any:
    """Takes each `stride`-th pixel, in place of a strided 1 × 1 convolution.

    TensorFlow's oneDNN corrupts memory in the gradient of such a convolution
    with few channels (seen with 2.18 and 2.21: 1 × 1, stride 2, 8 or
    fewer channels of 16 × 16 pixels).
    """
    return x if stride == 1 else keras.layers.MaxPooling2D(1, stride)(x)


_batch_norm = functools.partial(
    keras.layers.BatchNormalization, momentum=0.9, epsilon=1e-5
)


def _normalised(x: Any) -> Any:
    return keras.layers.ReLU()(_batch_norm()(x))


def _penalty(weight_decay: float) -> keras.Regularizer | None:
    return keras.regularizers.L2(weight_decay / 2) if weight_decay else None
