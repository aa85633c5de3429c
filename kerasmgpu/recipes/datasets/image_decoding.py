"""Decoding, cropping and augmentation of images.

Random numbers follow from the caller's seed, an int32 tensor `[2]`: an image
looks the same in every run, on any number of replicas. Encoded images are
scalar strings, JPEG, PNG, GIF or BMP files.
"""

import tensorflow as tf
from tensorflow import Tensor

# Share of an image that a random crop keeps, and its aspect ratio: those of
# Szegedy et al. (arXiv:1409.4842, section 6), as ImageNet is usually trained.
_AREA_RANGE = (0.08, 1.0)
_ASPECT_RATIO_RANGE = (3 / 4, 4 / 3)
# A validation image is cut from its middle: 224 of 256 pixels.
_CENTRAL_FRACTION = 224 / 256
# Pixels by which a small image is shifted at most (He et al.,
# arXiv:1512.03385, section 4.2).
_SHIFT = 4


def random_crop(encoded: Tensor, image_size: int, seed: Tensor) -> Tensor:
    """Decodes a random part of an image, resized and randomly mirrored.

    Returns uint8 `[image_size, image_size, 3]`.
    """
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        _shape(encoded),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed,
        min_object_covered=_AREA_RANGE[0],
        aspect_ratio_range=_ASPECT_RATIO_RANGE,
        area_range=_AREA_RANGE,
        use_image_if_no_bounding_boxes=True,
    )
    image = _resized(_decode(encoded, begin[:2], size[:2]), image_size)
    return tf.image.stateless_random_flip_left_right(image, seed)


def central_crop(encoded: Tensor, image_size: int) -> Tensor:
    """Decodes the middle of an image, for validation; shape as `random_crop`."""
    size = _shape(encoded)[:2]
    shorter = tf.cast(tf.reduce_min(size), tf.float32)
    side = tf.maximum(1, tf.cast(_CENTRAL_FRACTION * shorter, tf.int32))
    image = _decode(encoded, (size - side) // 2, tf.stack([side, side]))
    return _resized(image, image_size)


def shift_and_flip(images: Tensor, seed: Tensor, may_flip: bool) -> Tensor:
    """Shifts images by up to 4 pixels; with `may_flip`, mirrors about half.

    Images are uint8, `[rows, height, width, channels]`. Edges are filled with
    black.
    """
    num_rows = tf.shape(images)[0]
    offsets = tf.random.stateless_uniform(
        [2, num_rows, 1], seed, 0, 2 * _SHIFT + 1, tf.int32
    )
    edge = [_SHIFT, _SHIFT]
    shifted = tf.pad(images, [[0, 0], edge, edge, [0, 0]])
    for axis, offset in ((1, offsets[0]), (2, offsets[1])):
        kept = offset + tf.range(images.shape[axis])
        shifted = tf.gather(shifted, kept, axis=axis, batch_dims=1)
    if not may_flip:
        return shifted
    mirrored = tf.random.stateless_uniform([num_rows, 1, 1, 1], seed + 1) < 0.5
    return tf.where(mirrored, tf.reverse(shifted, [2]), shifted)


def resize(images: Tensor, image_size: int) -> Tensor:
    """Resizes uint8 images, `[rows, height, width, channels]`."""
    if tuple(images.shape[1:3]) == (image_size, image_size):
        return images
    return _resized(images, image_size)


def _resized(images: Tensor, image_size: int) -> Tensor:
    images = tf.image.resize(images, [image_size, image_size])
    # Copies a quarter of float32's bytes to the device.
    return tf.saturate_cast(tf.round(images), tf.uint8)


def _shape(encoded: Tensor) -> Tensor:
    """Height, width and channels: int32 `[3]`."""
    return tf.cond(
        tf.io.is_jpeg(encoded),
        # Reads the header alone.
        lambda: tf.image.extract_jpeg_shape(encoded),
        lambda: tf.shape(_decode_whole(encoded)),
    )


def _decode(encoded: Tensor, begin: Tensor, size: Tensor) -> Tensor:
    """Decodes a rectangle: uint8 `[height, width, 3]`."""

    def jpeg() -> Tensor:
        # Decodes that part of the file only.
        window = tf.concat([begin, size], 0)
        return tf.image.decode_and_crop_jpeg(encoded, window, channels=3)

    def other() -> Tensor:
        end = begin + size
        return _decode_whole(encoded)[begin[0] : end[0], begin[1] : end[1]]

    return tf.cond(tf.io.is_jpeg(encoded), jpeg, other)


def _decode_whole(encoded: Tensor) -> Tensor:
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape([None, None, 3])
    return image
