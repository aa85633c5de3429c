"""Images and the numbers of their classes: in memory, in folders or TFRecords.

A tree has a folder per class, as for ImageNet.
(`keras.utils.image_dataset_from_directory` skips no damaged image, and its order
can't begin at any step.) A record is a `tf.train.Example` with the features
`image/encoded` (the bytes of an image file) and `image/class/label` (an
integer). ImageNet's labels are 1 to 1000, and 0 is the background: 1001 classes.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from kerasmgpu.errors import InputError, listed
from kerasmgpu.recipes.datasets import row_order

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp")

_RECORD_FILE = re.compile(r".*(\.tfrecords?|-\d+-of-\d+)(\.tfrecords?)?")
_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
# A record's bytes lie between their length with its checksum, and their own
# checksum.
_LENGTH = struct.Struct("<Q")
_BEFORE, _AFTER = 12, 4


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
        is_held_out = row_order.held_out_rows(
            len(self), held_out, seed, "images"
        )
        return [
            LabelledImages(self.images[chosen], self.labels[chosen])
            for chosen in (~is_held_out, is_held_out)
        ]


@dataclasses.dataclass(frozen=True)
class ImageRecords:
    """Records of the files `paths`, `num_rows` in all.

    Where `every` is n, the n-th, 2n-th, … record of each file is held out, and
    `held_out` says whether these are the held-out records.
    """

    paths: tuple[str, ...]
    num_rows: int
    every: int | None = None
    held_out: bool = False

    in_memory = False

    def __len__(self) -> int:
        return self.num_rows

    def read(self, path: tf.Tensor) -> tf.data.Dataset:
        """`tf.data.Dataset` of a file's `(name, record)`, string scalars."""
        records = tf.data.TFRecordDataset(path).enumerate(1)
        if self.every is not None:
            records = records.filter(
                lambda number, _: (number % self.every == 0) == self.held_out
            )
        return records.map(
            lambda number, record: (
                path + " record " + tf.strings.as_string(number),
                record,
            )
        )


@dataclasses.dataclass(frozen=True)
class ImageData:
    """Images to train on and held out.

    `train` and `held_out` are `LabelledImages` or `ImageRecords`;
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


def load_folders(root: pathlib.Path, held_out: float, seed: int) -> ImageData:
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
        raise InputError(
            "Training and validation must have the same classes. Received: "
            f"{validation[0]}, where {listed(different, 3)} differ(s)"
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


def has_records(path: pathlib.Path) -> bool:
    """Whether a path is a file, or a folder of TFRecord files."""
    return path.is_file() or any(
        entry.is_file() and is_record_file(entry.name)
        for entry in path.iterdir()
    )


def is_record_file(name: str) -> bool:
    return _RECORD_FILE.fullmatch(name) is not None


def parse_record(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The image's bytes and label in a serialised example."""
    features = tf.io.parse_single_example(record, _FEATURES)
    return features["image/encoded"], features["image/class/label"]


def load_records(
    root: pathlib.Path, held_out: float, num_classes: int | None = None
) -> ImageData:
    """Finds and counts the records of a file, or of a folder's files.

    Files of a folder end in `.tfrecord` or are numbered, as in
    `train-00000-of-01024`. Those whose name begins with `val` are held out.
    Without such files, the fraction `held_out` of each file's records is held
    out, evenly spaced. Without `num_classes` all labels are read to count them.
    """
    paths = [root]
    if root.is_dir():
        paths = [p for p in sorted(root.iterdir()) if is_record_file(p.name)]
    # Mostly waits for the disk.
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        counts = dict(zip(map(str, paths), pool.map(_count, paths)))
    num_records = sum(counts.values())
    validation = tuple(str(p) for p in paths if p.name.startswith("val"))
    if 0 < len(validation) < len(paths):
        num_held_out = sum(counts[path] for path in validation)
        rest = tuple(path for path in counts if path not in validation)
        train = ImageRecords(rest, num_records - num_held_out)
        held = ImageRecords(validation, num_held_out)
    else:
        every = max(2, round(1 / held_out))
        num_held_out = sum(count // every for count in counts.values())
        files = tuple(counts)
        train = ImageRecords(files, num_records - num_held_out, every)
        held = ImageRecords(files, num_held_out, every, held_out=True)
    if not len(train) or not len(held):
        raise InputError(
            "Expected records to train on and records to hold out. Received: "
            f"{root} with {num_records} record(s)"
        )
    if num_classes is None:
        num_classes = _highest_label(counts) + 1
    return described(root.name, "records", (train, held), num_classes)


def _count(path: pathlib.Path) -> int:
    """Counts the records of a file, reading their lengths alone."""
    size = os.path.getsize(path)
    position = count = 0
    with open(path, "rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(_BEFORE)
            if len(header) == _BEFORE:
                position += _BEFORE + _LENGTH.unpack_from(header)[0] + _AFTER
            if len(header) < _BEFORE or position > size:
                raise InputError(
                    "Expected complete TFRecords. Received: "
                    f"{path}, which is cut off in record {count + 1}"
                )
            count += 1
    return count


def _highest_label(paths: Iterable[str]) -> int:
    """Returns the highest label of all records; verifies their checksums."""
    highest = 0
    for path in paths:
        labels = tf.data.TFRecordDataset(path).map(
            lambda record: parse_record(record)[1], tf.data.AUTOTUNE
        )
        try:
            for label in labels:
                highest = max(highest, int(label))
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as e:
            raise InputError(
                "Expected TFRecords with image/encoded and image/class/label. "
                f"Received: {path} ({e.message.splitlines()[0]})"
            ) from e
    return highest
