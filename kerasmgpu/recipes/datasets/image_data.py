"""Images and the numbers of their classes: training and held out."""

import dataclasses
from typing import Any

import numpy as np

from kerasmgpu.recipes.datasets import holding_out


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
