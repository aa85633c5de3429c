"""Images in TFRecord files, as the field writes ImageNet.

A record is a `tf.train.Example` with the features `image/encoded` (the bytes
of an image file) and `image/class/label` (an integer). ImageNet's labels are 1
to 1000 there, and 0 is for what is none of these: 1001 classes.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import struct

import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.alexnet.images import ImageData
from kerasmgpu.recipes.shared import holding_out

_RECORD_FILE = re.compile(r".*(\.tfrecords?|-\d+-of-\d+)(\.tfrecords?)?")
_FEATURES = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
# Around a record's bytes: their length and its checksum, and theirs.
_LENGTH = struct.Struct("<Q")
_BEFORE, _AFTER = 12, 4


@dataclasses.dataclass(frozen=True)
class ImageRecords:
    """Records of some files, all or a part of each.

    Args:
        paths: Tuple of strings, the files.
        num_rows: Records in all.
        every: Integer n: the n-th, 2n-th, … record of a file is held out;
            `None` where whole files are.
        held_out: With `every`: whether these are the held-out records.
    """

    paths: tuple
    num_rows: int
    every: int | None = None
    held_out: bool = False

    def __len__(self):
        return self.num_rows

    def read(self, path):
        """Records of one of the files.

        Args:
            path: Scalar string tensor.

        Returns:
            `tf.data.Dataset` of `(name, record)`: a name for messages and the
            serialised example, string scalars.
        """
        records = tf.data.TFRecordDataset(path).enumerate(1)
        if self.every is not None:
            records = records.filter(
                lambda number, _: (
                    tf.equal(number % self.every, 0) == self.held_out
                )
            )

        def name(number, record):
            words = [path, "record", tf.strings.as_string(number)]
            return tf.strings.join(words, " "), record

        return records.map(name)


def is_record_file(name):
    """Whether a file name is that of TFRecords."""
    return _RECORD_FILE.fullmatch(name) is not None


def parse(record):
    """The bytes of the image and its label, of a serialised example."""
    features = tf.io.parse_single_example(record, _FEATURES)
    return features["image/encoded"], features["image/class/label"]


def load(path, held_out, num_classes=None):
    """Finds and counts the records of a file, or of a folder's files.

    Files of a folder end in `.tfrecord` or are numbered, as in
    `train-00000-of-01024`. Those whose name begins with `val` are held out;
    where there are none, part of each file is, at equal distances.

    Args:
        path: The file or the folder.
        held_out: Fraction to hold out where no file is.
        num_classes: Classes; labels are below. `None` (default) reads the
            labels of all records: give it where that takes long.

    Returns:
        `ImageData` of `ImageRecords`.

    Raises:
        InputError: If there are no records, or a file is damaged.

    Example:

    ```python
    data = load("/data/imagenet-tfrecords", held_out=0.1, num_classes=1001)
    ```
    """
    root = pathlib.Path(path)
    paths = [root] if root.is_file() else sorted(root.iterdir())
    paths = [p for p in paths if root.is_file() or is_record_file(p.name)]
    # Waiting for the disk is most of it.
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        counts = dict(zip(map(str, paths), pool.map(_count, paths)))
    validation = [p for p in paths if p.name.startswith("val")]
    if validation and len(validation) < len(paths):
        rest = [p for p in paths if p not in validation]
        parts = [_whole(rest, counts), _whole(validation, counts)]
    else:
        parts = _divided(counts, held_out)
    if not all(map(len, parts)):
        raise InputError(
            "Expected records to train on and records to hold out. Received: "
            f"{root} with {sum(counts.values())} record(s)"
        )
    if num_classes is None:
        num_classes = _highest_label(counts) + 1
    train, rest = parts
    return ImageData(
        train,
        rest,
        num_classes=num_classes,
        image_shape=None,
        may_flip=True,
        description=(
            f"{root.name}: {len(train):,} records to train on, {len(rest):,} "
            f"held out, {num_classes} classes"
        ),
    )


def _whole(paths, counts):
    names = tuple(map(str, paths))
    return ImageRecords(names, sum(counts[name] for name in names))


def _divided(counts, held_out):
    holding_out.require_fraction(held_out, "images")
    every = max(2, round(1 / held_out))
    rest = sum(count // every for count in counts.values())
    paths = tuple(counts)
    return [
        ImageRecords(paths, sum(counts.values()) - rest, every, held_out=False),
        ImageRecords(paths, rest, every, held_out=True),
    ]


def _count(path):
    """Records of a file, by their lengths alone."""
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
                    "Expected whole TFRecords. Received: "
                    f"{path}, which breaks off in record {count + 1}"
                )
            count += 1
    return count


def _highest_label(paths):
    """Reads all records, and with them all checksums."""
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
