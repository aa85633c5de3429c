"""TFRecords: counting, holding out, and damage."""

import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_records


def example(label, encoded=b"image"):
    feature = tf.train.Feature
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                "image/encoded": feature(
                    bytes_list=tf.train.BytesList(value=[encoded])
                ),
                "image/class/label": feature(
                    int64_list=tf.train.Int64List(value=[label])
                ),
            }
        )
    ).SerializeToString()


def write(path, labels):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for label in labels:
            writer.write(example(label))
    return path


def labels_of(part):
    return [
        int(image_records.parse(record)[1])
        for path in part.paths
        for _, record in part.read(path)
    ]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("train-00000-of-01024", True),
        ("a.tfrecord", True),
        ("a.tfrecords", True),
        ("train-00000-of-00010.tfrecord", True),
        ("train.txt", False),
        ("n01440764", False),
    ],
)
def test_record_files_are_known_by_name(name, expected):
    assert image_records.is_record_file(name) == expected


def test_validation_files_are_held_out(tmp_path):
    write(tmp_path / "train-00000-of-00002", [1, 2])
    write(tmp_path / "train-00001-of-00002", [3])
    write(tmp_path / "validation-00000-of-00001", [2, 1])
    data = image_records.load(tmp_path, held_out=0.1)
    assert (len(data.train), len(data.held_out)) == (3, 2)
    assert labels_of(data.train) == [1, 2, 3]
    assert labels_of(data.held_out) == [2, 1]
    assert data.num_classes == 4


def test_without_them_every_nth_record_is(tmp_path):
    path = write(tmp_path / "all.tfrecord", range(10))
    data = image_records.load(path, held_out=0.25, num_classes=20)
    assert labels_of(data.held_out) == [3, 7]
    assert labels_of(data.train) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert (len(data.train), len(data.held_out)) == (8, 2)
    assert data.num_classes == 20


def test_a_file_that_breaks_off_is_refused(tmp_path):
    path = write(tmp_path / "all.tfrecord", range(4))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match="all.tfrecord.* in record 4"):
        image_records.load(path, held_out=0.5)


def test_records_of_something_else_are_refused(tmp_path):
    path = tmp_path / "all.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(4):
            writer.write(tf.train.Example().SerializeToString())
    with pytest.raises(InputError, match="image/class/label.*all.tfrecord"):
        image_records.load(path, held_out=0.5)


def test_an_empty_file_is_refused(tmp_path):
    path = write(tmp_path / "all.tfrecord", [])
    with pytest.raises(InputError, match=r"0 record\(s\)"):
        image_records.load(path, held_out=0.5)
