"""Drawn images of textured shapes, in place of real ones."""

import numpy as np
from numpy import ndarray as Array

SHAPES = ("disc", "square", "triangle", "ring", "cross")
TEXTURES = ("plain", "striped")
CLASS_NAMES = tuple(
    f"{texture} {shape}" for shape in SHAPES for texture in TEXTURES
)
"""Names of the classes, by label."""

# Standard deviation in each channel, where 1 is white: enough to keep a good
# network below 100 %.
_NOISE = 0.1
_MAX_TILT = 0.3  # Radians.
_IMAGES_AT_ONCE = 512


def generate(
    num_images: int, image_size: int, seed: int = 0
) -> tuple[Array, Array]:
    """Draws images for a network to classify.

    An image shows one of five shapes, near the middle, of random size and
    slightly rotated, plain or with stripes of any angle, on a background of
    another colour, with noise. The class is shape and texture; colours, place
    and angle are random. Classes are equally frequent, in random order.

    Returns images, uint8 `[images, height, width, 3]`, and labels, int32
    `[images]`, numbers of `CLASS_NAMES`.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(num_images).astype(np.int32) % len(CLASS_NAMES)
    images = np.empty((num_images, image_size, image_size, 3), np.uint8)
    for start in range(0, num_images, _IMAGES_AT_ONCE):
        rows = slice(start, start + _IMAGES_AT_ONCE)
        images[rows] = _draw(rng, labels[rows], image_size)
    return images, labels


def _draw(rng: np.random.Generator, labels: Array, image_size: int) -> Array:
    """Draws an image per label."""
    count = len(labels)
    shapes, textures = map(_per_image, np.divmod(labels, len(TEXTURES)))
    axis = (np.arange(image_size, dtype=np.float32) + 0.5) / image_size
    radius = _per_image(rng.uniform(0.26, 0.42, count))
    x, y = (
        (grid[None] - _per_image(rng.uniform(0.4, 0.6, count))) / radius
        for grid in np.meshgrid(axis, axis)
    )
    tilt = rng.uniform(-_MAX_TILT, _MAX_TILT, count)
    inside = _inside(*_rotate(x, y, tilt), shapes)
    across, _ = _rotate(x, y, rng.uniform(0, np.pi, count))
    waves = _per_image(rng.uniform(1.3, 1.7, count))  # Per radius.
    is_bright = (textures == 0) | (np.sin(2 * np.pi * waves * across) > 0)
    levels = np.array([0.3, 0.1, 0.8], np.float32)[:, None, None]
    tints = rng.uniform(-0.1, 0.1, (3, count, 3)).astype(np.float32)
    colours = np.clip(levels + tints, 0, 1)[:, :, None, None]
    background, dark, bright = colours
    filling = np.where(is_bright[..., None], bright, dark)
    images = np.where(inside[..., None], filling, background)
    images += _NOISE * rng.standard_normal(images.shape, np.float32)
    return np.rint(255 * np.clip(images, 0, 1)).astype(np.uint8)


def _per_image(values: Array) -> Array:
    """Reshapes `[images]` to `[images, 1, 1]`, to broadcast over pixels."""
    return values[:, None, None].astype(np.float32)


def _rotate(x: Array, y: Array, angles: Array) -> tuple[Array, Array]:
    cosine, sine = _per_image(np.cos(angles)), _per_image(np.sin(angles))
    return cosine * x + sine * y, cosine * y - sine * x


def _inside(x: Array, y: Array, shapes: Array) -> Array:
    """Mask of the shape's pixels; no point is farther than 1 from the centre."""
    distance = np.hypot(x, y)
    larger, smaller = np.maximum(abs(x), abs(y)), np.minimum(abs(x), abs(y))
    masks = (
        distance < 1,
        larger < 0.8,
        (y > -0.5) & (y + np.sqrt(np.float32(3)) * abs(x) < 1),
        (distance < 1) & (distance > 0.5),
        (larger < 0.95) & (smaller < 0.3),
    )
    return np.choose(shapes.astype(np.int32), masks)
