"""A tree of folders, one per class, as ImageNet is kept.

`keras.utils.image_dataset_from_directory` leaves out no damaged image and has
no order that a run can go on in.
"""

import os
import pathlib

import numpy as np

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.alexnet.images import (
    ImageData,
    ImageFiles,
    shortened,
    split,
)

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
_VALIDATION_FOLDERS = ("val", "validation")


def load(path, held_out, seed):
    """Finds the images of a folder tree; none is read yet.

        path/train/<class>/*.jpg  and, where it is there,  path/val/<class>/…
        path/<class>/*.jpg

    Without `val` (or `validation`) a part is held out at random.
    Classes are numbered by the order of their names. Names of files matter by
    their ending only, names that begin with "." or "__" are let pass.

    Args:
        path: The folder.
        held_out: Fraction to hold out where there is no validation folder.
        seed: Integer, seed of that split.

    Returns:
        `ImageData` of `ImageFiles`.

    Raises:
        InputError: If the tree has fewer than two classes, a class has no
            images, or the two parts differ in classes.

    Example:

    ```python
    data = load("/data/imagenet", held_out=0.1, seed=0)
    print(len(data.train), data.num_classes)
    ```
    """
    root = pathlib.Path(path)
    train_root = root / "train" if (root / "train").is_dir() else root
    classes = _class_names(train_root)
    train = _files(train_root, classes)
    validation = [
        root / name
        for name in _VALIDATION_FOLDERS
        if train_root != root and (root / name).is_dir()
    ]
    if validation:
        _require_same_classes(validation[0], classes)
        rest = _files(validation[0], classes)
    else:
        train, rest = split(train, held_out, seed)
    return ImageData(
        train,
        rest,
        num_classes=len(classes),
        image_shape=None,
        may_flip=True,
        description=(
            f"{root.name}: {len(train):,} image files to train on, "
            f"{len(rest):,} held out, {len(classes)} classes"
        ),
    )


def _class_names(folder):
    classes = sorted(_folders(folder))
    if len(classes) < 2:
        raise InputError(
            "Expected a folder per class, two classes at least. Received: "
            f"{folder} with {len(classes)} folder(s)"
            + (f": {classes[0]}" if classes else "")
        )
    return classes


def _require_same_classes(folder, classes):
    different = sorted(set(classes) ^ set(_folders(folder)))
    if different:
        raise InputError(
            "Training and validation must have the same classes. Received: "
            f"{folder}, where {shortened(different)} differ(s)"
        )


def _folders(folder):
    with os.scandir(folder) as entries:
        return [e.name for e in entries if e.is_dir() and not _is_hidden(e)]


def _files(folder, classes):
    """`ImageFiles` of all classes, ordered by class and name."""
    paths, labels = [], []
    for label, name in enumerate(classes):
        found = sorted(_images_below(folder / name))
        if not found:
            raise InputError(
                f"The folder of a class has no images ({', '.join(SUFFIXES)}). "
                f"Received: {folder / name}"
            )
        paths.extend(found)
        labels.extend([label] * len(found))
    return ImageFiles(np.array(paths), np.array(labels, np.int32))


def _images_below(folder):
    # scandir alone: a `pathlib.Path` for each of a million files takes minutes.
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry):
                continue
            if entry.is_dir():
                yield from _images_below(entry.path)
            elif entry.name.lower().endswith(SUFFIXES):
                yield entry.path


def _is_hidden(entry):
    return entry.name.startswith((".", "__"))
