"""Finds, fetches or draws the images that the flags name.

Drawn images show textured shapes, in place of real ones.
"""

import pathlib
from types import SimpleNamespace

import numpy as np
from numpy import ndarray as Array

from kerasmgpu.recipes.datasets import downloads, image_data
from kerasmgpu.recipes.datasets.image_data import (
    ImageData,
    LabelledImages,
    described,
)
from kerasmgpu.stores.places import local_copy

FILE_SIZE = 224
"""Default height and width of images from files, in pixels."""

_GENERATED_IMAGES, _GENERATED_SIZE = 4000, 32
_SYNTHETIC_IMAGES, _SYNTHETIC_CLASSES = 12_800, 1000
_NO_NETWORK = (
    "Fetch it on a machine with one, copy Keras's folder (~/.keras/datasets) "
    "here, or give --data_path"
)

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


def load(settings: SimpleNamespace) -> ImageData:
    """Finds, fetches or draws the `ImageData` that the flags name."""
    held_out, seed = settings.held_out, settings.seed
    if settings.data_path:
        path = pathlib.Path(local_copy(settings.data_path))
        if image_data.has_records(path):
            return image_data.load_records(path, held_out, settings.num_classes)
        return image_data.load_folders(path, held_out, seed)
    if settings.dataset == "synthetic":
        return _synthetic(settings)
    if settings.dataset == "digits":
        return digits(held_out, seed)
    if settings.dataset == "generated":
        size = settings.image_size or _GENERATED_SIZE
        return generated(size, held_out, seed)
    return fetched(settings.dataset)


def _synthetic(settings: SimpleNamespace) -> ImageData:
    """Number and shape of synthetic images, which the network generates."""
    size = settings.image_size or FILE_SIZE
    return ImageData(
        train=range(_SYNTHETIC_IMAGES),
        held_out=None,
        num_classes=settings.num_classes or _SYNTHETIC_CLASSES,
        description=f"synthetic: random images of {size} pixels that stay on "
        "the devices; nothing can be learned",
        image_shape=(size, size, 3),
    )


def fetched(name: str) -> ImageData:
    """Loads a data set of Keras; its test images are held out."""
    import keras

    with downloads.one_line_errors(name, _NO_NETWORK):
        parts = getattr(keras.datasets, name).load_data()
    return described(name, "images", [_in_memory(*part) for part in parts], 10)


def digits(held_out: float, seed: int) -> ImageData:
    """Loads the 1,797 scanned digits, 8 × 8 pixels, of scikit-learn.

    They are a part of "Optical Recognition of Handwritten Digits" (Alpaydin
    and Kaynak, UCI repository, 1998).
    """
    from sklearn import datasets

    bunch = datasets.load_digits()
    # Levels of grey from 0 to 16.
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    parts = _in_memory(images, bunch.target).split(held_out, seed)
    name = "scikit-learn's digits"
    return described(name, "images", parts, 10, may_flip=False)


def generated(
    image_size: int,
    held_out: float,
    seed: int,
    num_images: int = _GENERATED_IMAGES,
) -> ImageData:
    """Draws the same images in every run; see `draw`."""
    drawn = draw(num_images, image_size)
    return described(
        "generated, not real",
        "drawn images",
        LabelledImages(*drawn).split(held_out, seed),
        len(CLASS_NAMES),
        # Their place and angle are drawn at random already.
        may_flip=False,
        may_shift=False,
    )


def _in_memory(images: Array, labels: Array) -> LabelledImages:
    """`LabelledImages` with a channel axis and flat labels."""
    if images.ndim == 3:
        images = images[..., None]
    return LabelledImages(images, labels.reshape(-1).astype(np.int32))


def draw(
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
