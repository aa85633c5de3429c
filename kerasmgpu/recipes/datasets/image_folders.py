"""Images in a tree of folders, one per class, as for ImageNet.

`keras.utils.image_dataset_from_directory` skips no damaged image, and its order
can't begin at any step.
"""

import os
import pathlib
from collections.abc import Iterator

import numpy as np

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets.image_data import (
    ImageData,
    LabelledImages,
    described,
)

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")


def load(root: pathlib.Path, held_out: float, seed: int) -> ImageData:
    """Finds the images of a folder tree, without reading them.

        root/train/<class>/*.jpg  and optionally  root/val/<class>/…
        root/<class>/*.jpg

    Without `val` (or `validation`) the fraction `held_out` is held out at
    random. Classes are numbered by the order of their names. Names that begin
    with "." or "__" are ignored.
    """
    folder, validation = root, []
    if (root / "train").is_dir():
        folder = root / "train"
        names = (root / "val", root / "validation")
        validation = [path for path in names if path.is_dir()]
    classes = _folders(folder)
    if len(classes) < 2:
        raise InputError(
            "Expected a folder per class, two classes at least. Received: "
            f"{folder} with {len(classes)} folder(s)"
            + (f": {classes[0]}" if classes else "")
        )
    train = _files(folder, classes)
    if not validation:
        parts = train.split(held_out, seed)
    elif different := sorted({*classes} ^ {*_folders(validation[0])}):
        more = ", …" if len(different) > 3 else ""
        raise InputError(
            "Training and validation must have the same classes. Received: "
            f"{validation[0]}, where {', '.join(different[:3])}{more} differ(s)"
        )
    else:
        parts = [train, _files(validation[0], classes)]
    return described(root.name, "image files", parts, len(classes))


def _folders(folder: pathlib.Path) -> list[str]:
    names = (path.name for path in folder.iterdir() if path.is_dir())
    return sorted(filter(_is_shown, names))


def _files(folder: pathlib.Path, classes: list[str]) -> LabelledImages:
    """Images of all classes, ordered by class and path."""
    found = [sorted(_images_below(folder / name)) for name in classes]
    for name, paths in zip(classes, found):
        if not paths:
            raise InputError(
                f"The folder of a class has no images ({', '.join(SUFFIXES)}). "
                f"Received: {folder / name}"
            )
    numbers = np.arange(len(classes), dtype=np.int32)
    labels = np.repeat(numbers, [len(paths) for paths in found])
    return LabelledImages(np.concatenate(found), labels)


def _images_below(folder: pathlib.Path) -> Iterator[str]:
    # A `pathlib.Path` for each of a million files would take minutes.
    for path, folders, names in os.walk(folder, followlinks=True):
        folders[:] = filter(_is_shown, folders)
        for name in filter(_is_shown, names):
            if name.lower().endswith(SUFFIXES):
                yield os.path.join(path, name)


def _is_shown(name: str) -> bool:
    return not name.startswith((".", "__"))
