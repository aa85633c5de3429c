"""Decoding, cropping and augmentation of images.

Random numbers follow from the caller's seed: an image looks the same in every
run, on any number of replicas.
"""

import tensorflow as tf

# Share of an image that a random crop keeps, and its aspect ratio: those of
# Szegedy et al. (arXiv:1409.4842, section 6), as ImageNet is usually trained.
_AREA_RANGE = (0.08, 1.0)
_ASPECT_RATIO_RANGE = (3 / 4, 4 / 3)
# A validation image is cut from its middle: 224 of 256 pixels.
_CENTRAL_FRACTION = 224 / 256
# Pixels by which a small image is shifted at most (He et al.,
# arXiv:1512.03385, section 4.2).
_SHIFT = 4


def random_crop(
    encoded: tf.Tensor, image_size: int, seed: tf.Tensor
) -> tf.Tensor:
    """Decodes a random part of an image, resized and randomly mirrored.

    Args:
        encoded: Scalar string, a JPEG, PNG, GIF or BMP file.
        image_size: Height and width to resize to.
        seed: int32 tensor `[2]`.

    Returns:
        uint8 tensor `[image_size, image_size, 3]`.
    """
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
    begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
        _shape(encoded),
        whole,
        seed,
        min_object_covered=_AREA_RANGE[0],
        aspect_ratio_range=_ASPECT_RATIO_RANGE,
        area_range=_AREA_RANGE,
        use_image_if_no_bounding_boxes=True,
    )
    image = _decode(encoded, begin[0], begin[1], size[0], size[1])
    image = _resized(image, image_size)
    return tf.image.stateless_random_flip_left_right(image, seed)


def central_crop(encoded: tf.Tensor, image_size: int) -> tf.Tensor:
    """Decodes the middle of an image, for validation; as `random_crop`."""
    shape = _shape(encoded)
    height, width = shape[0], shape[1]
    shorter = tf.cast(tf.minimum(height, width), tf.float32)
    side = tf.maximum(1, tf.cast(_CENTRAL_FRACTION * shorter, tf.int32))
    image = _decode(
        encoded, (height - side) // 2, (width - side) // 2, side, side
    )
    return _resized(image, image_size)


def shift_and_flip(
    images: tf.Tensor, seed: tf.Tensor, may_flip: bool
) -> tf.Tensor:
    """Shifts each image by up to 4 pixels and may mirror half of them.

    Images are uint8, `[rows, height, width, channels]`; the seed is int32,
    `[2]`. Edges are filled with black.
    """
    num_rows = tf.shape(images)[0]
    height, width = images.shape[1:3]
    offsets = tf.random.stateless_uniform(
        [2, num_rows, 1], seed, 0, 2 * _SHIFT + 1, tf.int32
    )
    edge = [_SHIFT, _SHIFT]
    images = tf.pad(images, [[0, 0], edge, edge, [0, 0]])
    images = tf.gather(
        images, offsets[0] + tf.range(height), axis=1, batch_dims=1
    )
    images = tf.gather(
        images, offsets[1] + tf.range(width), axis=2, batch_dims=1
    )
    if not may_flip:
        return images
    mirrored = tf.random.stateless_uniform([num_rows, 1, 1, 1], seed + 1) < 0.5
    return tf.where(mirrored, tf.reverse(images, [2]), images)


def resize(images: tf.Tensor, image_size: int) -> tf.Tensor:
    """Resizes uint8 images, `[rows, height, width, channels]`."""
    if tuple(images.shape[1:3]) == (image_size, image_size):
        return images
    return _resized(images, image_size)


def _resized(images: tf.Tensor, image_size: int) -> tf.Tensor:
    images = tf.image.resize(images, [image_size, image_size])
    # Copies a quarter of float32's bytes to the device.
    return tf.saturate_cast(tf.round(images), tf.uint8)


def _shape(encoded: tf.Tensor) -> tf.Tensor:
    """Height, width and channels: int32 `[3]`."""
    return tf.cond(
        tf.io.is_jpeg(encoded),
        # Reads the header alone.
        lambda: tf.image.extract_jpeg_shape(encoded),
        lambda: tf.shape(_decode_whole(encoded)),
    )


def _decode(
    encoded: tf.Tensor,
    top: tf.Tensor,
    left: tf.Tensor,
    height: tf.Tensor,
    width: tf.Tensor,
) -> tf.Tensor:
    """Decodes a rectangle: uint8 `[height, width, 3]`."""

    def jpeg() -> tf.Tensor:
        # Decodes that part of the file only.
        return tf.image.decode_and_crop_jpeg(
            encoded, tf.stack([top, left, height, width]), channels=3
        )

    def other() -> tf.Tensor:
        image = _decode_whole(encoded)
        return image[top : top + height, left : left + width]

    return tf.cond(tf.io.is_jpeg(encoded), jpeg, other)


def _decode_whole(encoded: tf.Tensor) -> tf.Tensor:
    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image.set_shape([None, None, 3])
    return image
