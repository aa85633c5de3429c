"""Images in memory, folder trees and TFRecords: what is found and refused."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_data
from tests.recipes.datasets import written_data


def test_every_image_is_on_one_side_of_the_split():
    labels = np.arange(10, dtype=np.int32)
    arrays = image_data.LabelledImages(
        np.zeros((10, 2, 2, 1), np.uint8), labels
    )
    train, held_out = arrays.split(0.3, seed=1)
    assert (len(train), len(held_out)) == (7, 3)
    both = np.sort(np.concatenate([train.labels, held_out.labels]))
    np.testing.assert_array_equal(both, labels)
    _, other = arrays.split(0.3, seed=2)
    assert set(other.labels) != set(held_out.labels)


def make(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_classes_are_numbered_by_name_and_other_files_let_pass(tmp_path):
    make(
        tmp_path,
        "train/dog/2.PNG",
        "train/dog/1.jpeg",
        "train/cat/deep/er/3.JPEG",
        "train/cat/notes.txt",
        "train/cat/._3.JPEG",
        "train/.cache/4.jpg",
        "val/cat/5.jpg",
        "val/dog/6.bmp",
    )
    data = image_data.load_folders(tmp_path, held_out=0.5, seed=0)
    names = [path.rsplit("/", 1)[-1] for path in data.train.images]
    assert names == ["3.JPEG", "1.jpeg", "2.PNG"]
    assert data.train.labels.tolist() == [0, 1, 1]
    assert data.held_out.labels.tolist() == [0, 1]
    assert data.num_classes == 2
    expected = "3 image files to train on, 2 held out, 2 classes"
    assert expected in data.description


def test_without_validation_a_part_is_held_out(tmp_path):
    make(tmp_path, *(f"{c}/{i}.jpg" for c in "ab" for i in range(10)))
    data = image_data.load_folders(tmp_path, held_out=0.25, seed=0)
    assert (len(data.train), len(data.held_out)) == (15, 5)
    assert not set(data.train.images) & set(data.held_out.images)


@pytest.mark.parametrize(
    "names, message",
    [
        (["train/cat/1.jpg"], r"1 folder\(s\): cat"),
        (["1.jpg"], r"0 folder\(s\)"),
        (["cat/1.jpg", "dog/2.txt"], "no images .* Received: .*dog"),
        (
            ["train/a/1.jpg", "train/b/1.jpg", "val/a/1.jpg", "val/c/1.jpg"],
            "b, c differ",
        ),
    ],
)
def test_what_is_no_tree_of_classes_is_refused(tmp_path, names, message):
    make(tmp_path, *names)
    with pytest.raises(InputError, match=message):
        image_data.load_folders(tmp_path, held_out=0.5, seed=0)


def write(path, labels):
    return written_data.write_records(
        path, [(b"image", label) for label in labels]
    )


def labels_of(part):
    return [
        int(image_data.parse_record(record)[1])
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
    assert image_data.is_record_file(name) == expected


def test_validation_files_are_held_out(tmp_path):
    write(tmp_path / "train-00000-of-00002", [1, 2])
    write(tmp_path / "train-00001-of-00002", [3])
    write(tmp_path / "validation-00000-of-00001", [2, 1])
    data = image_data.load_records(tmp_path, held_out=0.1)
    assert (len(data.train), len(data.held_out)) == (3, 2)
    assert labels_of(data.train) == [1, 2, 3]
    assert labels_of(data.held_out) == [2, 1]
    assert data.num_classes == 4


def test_without_them_every_nth_record_is(tmp_path):
    path = write(tmp_path / "all.tfrecord", range(10))
    data = image_data.load_records(path, held_out=0.25, num_classes=20)
    assert labels_of(data.held_out) == [3, 7]
    assert labels_of(data.train) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert (len(data.train), len(data.held_out)) == (8, 2)
    assert data.num_classes == 20


def test_files_that_break_off_are_empty_or_of_something_else(tmp_path):
    path = write(tmp_path / "cut.tfrecord", range(4))
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match="cut.tfrecord.* in record 4"):
        image_data.load_records(path, held_out=0.5)
    path = write(tmp_path / "empty.tfrecord", [])
    with pytest.raises(InputError, match=r"0 record\(s\)"):
        image_data.load_records(path, held_out=0.5)
    with tf.io.TFRecordWriter(str(tmp_path / "other.tfrecord")) as writer:
        for _ in range(4):
            writer.write(tf.train.Example().SerializeToString())
    with pytest.raises(InputError, match="image/class/label.*other.tfrecord"):
        image_data.load_records(tmp_path / "other.tfrecord", held_out=0.5)
