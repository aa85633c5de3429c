"""Images in TFRecord files, in the usual form of ImageNet.

A record is a `tf.train.Example` with the features `image/encoded` (the bytes
of an image file) and `image/class/label` (an integer). ImageNet's labels are 1
to 1000, and 0 is the background: 1001 classes.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import struct
from collections.abc import Iterable

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets.image_data import ImageData, described

_RECORD_FILE = re.compile(r".*(\.tfrecords?|-\d+-of-\d+)(\.tfrecords?)?")
_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
# A record's bytes lie between their length with its checksum, and their own
# checksum.
_LENGTH = struct.Struct("<Q")
_BEFORE, _AFTER = 12, 4


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


def are_at(path: pathlib.Path) -> bool:
    """Whether a path is a file, or a folder of TFRecord files."""
    return path.is_file() or any(
        entry.is_file() and is_record_file(entry.name)
        for entry in path.iterdir()
    )


def is_record_file(name: str) -> bool:
    return _RECORD_FILE.fullmatch(name) is not None


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The image's bytes and label in a serialised example."""
    features = tf.io.parse_single_example(record, _FEATURES)
    return features["image/encoded"], features["image/class/label"]


def load(
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
            lambda record: parse(record)[1], tf.data.AUTOTUNE
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
