"""Finds, fetches or draws the images that the flags name."""

import pathlib
from types import SimpleNamespace

import numpy as np

from kerasmgpu.recipes.datasets import downloads
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


def load(settings: SimpleNamespace) -> ImageData:
    """Finds, fetches or draws the `ImageData` that the flags name."""
    from kerasmgpu.recipes.datasets import image_folders, image_records

    held_out, seed = settings.held_out, settings.seed
    if settings.data_path:
        path = pathlib.Path(local_copy(settings.data_path))
        if image_records.are_at(path):
            return image_records.load(path, held_out, settings.num_classes)
        return image_folders.load(path, held_out, seed)
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
    """Draws the same images in every run; see `generated_images.generate`."""
    from kerasmgpu.recipes.datasets import generated_images

    drawn = generated_images.generate(num_images, image_size)
    return described(
        "generated, not real",
        "drawn images",
        LabelledImages(*drawn).split(held_out, seed),
        len(generated_images.CLASS_NAMES),
        # Their place and angle are drawn at random already.
        may_flip=False,
        may_shift=False,
    )


def _in_memory(images: np.ndarray, labels: np.ndarray) -> LabelledImages:
    """`LabelledImages` with a channel axis and flat labels."""
    if images.ndim == 3:
        images = images[..., None]
    return LabelledImages(images, labels.reshape(-1).astype(np.int32))
