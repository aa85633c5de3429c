"""Folder trees: what is found, and what is refused."""

import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_folders


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
    data = image_folders.load(tmp_path, held_out=0.5, seed=0)
    names = [path.rsplit("/", 1)[-1] for path in data.train.images]
    assert names == ["3.JPEG", "1.jpeg", "2.PNG"]
    assert data.train.labels.tolist() == [0, 1, 1]
    assert data.held_out.labels.tolist() == [0, 1]
    assert data.num_classes == 2
    assert "3 image files to train on, 2 held out, 2 classes" in (
        data.description
    )


def test_without_validation_a_part_is_held_out(tmp_path):
    make(tmp_path, *(f"{c}/{i}.jpg" for c in "ab" for i in range(10)))
    data = image_folders.load(tmp_path, held_out=0.25, seed=0)
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
        image_folders.load(tmp_path, held_out=0.5, seed=0)
