"""Where images come from: what the flags name becomes `ImageData`."""

import pathlib

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.alexnet import (
    image_folders,
    image_networks,
    image_records,
    images,
)

_FILE_SIZE = 224
_GENERATED_SIZE = 32
_SYNTHETIC_IMAGES = 12_800
_SYNTHETIC_CLASSES = 1000


def load(settings):
    """Finds, fetches or draws the images.

    Returns:
        `images.ImageData`.

    Raises:
        InputError: If they can't be had.
    """
    if settings.data_path:
        return _from_path(settings)
    if settings.dataset == "synthetic":
        return _synthetic(settings)
    if settings.dataset == "digits":
        return images.digits(settings.held_out, settings.seed)
    if settings.dataset == "generated":
        return images.generated(
            settings.image_size or _GENERATED_SIZE,
            settings.held_out,
            settings.seed,
        )
    return images.fetched(settings.dataset)


def _from_path(settings):
    """The images of `--data_path`: TFRecords, or else a tree of folders."""
    path = pathlib.Path(settings.data_path)
    if path.is_file() or any(
        entry.is_file() and image_records.is_record_file(entry.name)
        for entry in path.iterdir()
    ):
        return image_records.load(path, settings.held_out, settings.num_classes)
    return image_folders.load(path, settings.held_out, settings.seed)


def _synthetic(settings):
    """No images: their number, and the shape of what a network makes up."""
    size = settings.image_size or _FILE_SIZE
    return images.ImageData(
        train=range(_SYNTHETIC_IMAGES),
        held_out=None,
        num_classes=settings.num_classes or _SYNTHETIC_CLASSES,
        image_shape=(size, size, 3),
        may_flip=False,
        description=(
            f"synthetic: random images of {size} pixels that stay on the "
            "devices; nothing can be learned"
        ),
    )


def network_shape(settings, data):
    """Height, width and channels that the network sees.

    Raises:
        InputError: If the network takes larger images only.
    """
    height, _, channels = data.image_shape or (_FILE_SIZE, _FILE_SIZE, 3)
    size = settings.image_size or height
    least = image_networks.MIN_IMAGE_SIZES[settings.network]
    if size < least:
        raise InputError(
            f"{settings.network} takes images of {least} pixels and more. "
            f"Received: {size}; give --image_size={least}"
        )
    return size, size, channels
