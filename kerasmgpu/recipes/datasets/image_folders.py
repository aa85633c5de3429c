"""A tree of folders, one per class, as ImageNet is kept.

`keras.utils.image_dataset_from_directory` leaves out no damaged image and has
no order that a run can go on in.
"""

import os

import numpy as np

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets.images import ImageData, LabelledImages

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")
_NAMES_IN_A_MESSAGE = 3


def load(root, held_out, seed):
    """Finds the images of a folder tree, `ImageData`; none is read yet.

        root/train/<class>/*.jpg  and, where it is there,  root/val/<class>/…
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
    classes = sorted(_folders(folder))
    if len(classes) < 2:
        raise InputError(
            "Expected a folder per class, two classes at least. Received: "
            f"{folder} with {len(classes)} folder(s)"
            + (f": {classes[0]}" if classes else "")
        )
    train = _files(folder, classes)
    if validation:
        _require_same_classes(validation[0], classes)
        rest = _files(validation[0], classes)
    else:
        train, rest = train.split(held_out, seed)
    return ImageData(
        train,
        rest,
        len(classes),
        f"{root.name}: {len(train):,} image files to train on, {len(rest):,} "
        f"held out, {len(classes)} classes",
    )


def _require_same_classes(folder, classes):
    different = sorted(set(classes) ^ set(_folders(folder)))
    if different:
        more = ", …" if len(different) > _NAMES_IN_A_MESSAGE else ""
        raise InputError(
            "Training and validation must have the same classes. Received: "
            f"{folder}, where {', '.join(different[:_NAMES_IN_A_MESSAGE])}"
            f"{more} differ(s)"
        )


def _folders(folder):
    with os.scandir(folder) as entries:
        return [e.name for e in entries if e.is_dir() and not _is_hidden(e)]


def _files(folder, classes):
    """Images of all classes, ordered by class and name."""
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
    return LabelledImages(np.array(paths), np.array(labels, np.int32))


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
