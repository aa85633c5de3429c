"""Images and their classes: in memory, as files, or as TFRecords."""

import dataclasses
import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np

from kerasmgpu.recipes.datasets import downloads, holding_out

FILE_SIZE = 224
"""Default height and width of images from files, in pixels."""

_GENERATED_IMAGES, _GENERATED_SIZE = 4000, 32
_SYNTHETIC_IMAGES, _SYNTHETIC_CLASSES = 12_800, 1000
_NO_NETWORK = (
    "Fetch it on a machine with one, copy Keras's folder (~/.keras/datasets) "
    "here, or give --data_path"
)


# Arrays have no single truth value, so the generated `==` would only raise.
@dataclasses.dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images in memory or in a file each, and the numbers of their classes.

    `images` is uint8, `[images, height, width, channels]`, or the paths of
    JPEG, PNG, GIF or BMP files, `[images]`; `labels` is int32, `[images]`.
    """

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def in_memory(self) -> bool:
        return self.images.ndim > 1

    def split(self, held_out: float, seed: int) -> list["LabelledImages"]:
        """Splits at random into training and held-out images."""
        is_held_out = holding_out.chosen(len(self), held_out, seed, "images")
        return [
            LabelledImages(self.images[chosen], self.labels[chosen])
            for chosen in (~is_held_out, is_held_out)
        ]


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images to train on and held out.

    `train` and `held_out` are `LabelledImages` or `image_records.ImageRecords`;
    labels are below `num_classes`. `image_shape` is the height, width and
    channels of an image in memory, `None` for files, which are cropped when
    they are read. `may_flip` says whether a mirror image is of the same class,
    `may_shift` whether images in memory are shifted at random.
    """

    train: Any
    held_out: Any
    num_classes: int
    description: str
    image_shape: tuple[int, ...] | None = None
    may_flip: bool = True
    may_shift: bool = True


def described(
    name: str, kind: str, parts: Any, num_classes: int, **settings: Any
) -> ImageData:
    """Returns an `ImageData` with a description; `kind` is a plural noun."""
    train, held_out = parts
    return ImageData(
        train,
        held_out,
        num_classes,
        f"{name}: {len(train):,} {kind} to train on, {len(held_out):,} held "
        f"out, {num_classes} classes",
        image_shape=train.images.shape[1:] if train.in_memory else None,
        **settings,
    )


def load(settings: SimpleNamespace) -> ImageData:
    """Finds, fetches or draws the `ImageData` that the flags name."""
    from kerasmgpu.recipes.datasets import image_folders, image_records

    held_out, seed = settings.held_out, settings.seed
    if settings.data_path:
        path = pathlib.Path(settings.data_path)
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
