"""Batches of images: order, resuming, and images that can't be decoded."""

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_batches, image_data
from tests.recipes.datasets import written_data


def encoded(level, size=12):
    return tf.io.encode_png(np.full((size, size, 3), level, np.uint8)).numpy()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Two classes of ten images; the brightness of each is its own."""
    root = tmp_path_factory.mktemp("tree")
    for k in range(20):
        folder = root / ("dark" if k < 10 else "light")
        folder.mkdir(exist_ok=True)
        (folder / f"{k:02}.png").write_bytes(encoded(10 * k))
    return root


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Three files with the same images as records."""
    root = tmp_path_factory.mktemp("records")
    for part in range(3):
        path = root / f"train-{part:05}-of-00003.tfrecord"
        levels = range(part, 20, 3)
        images = [(encoded(10 * k), int(k >= 10)) for k in levels]
        written_data.write_records(path, images)
    return root


def in_memory():
    levels = np.arange(20) * 10
    pixels = np.broadcast_to(levels[:, None, None, None], (20, 8, 8, 3))
    labels = (np.arange(20) >= 10).astype(np.int32)
    arrays = image_data.LabelledImages(pixels.astype(np.uint8), labels)
    return image_data.ImageData(
        *arrays.split(0.2, seed=0), 2, "made up", (8, 8, 3)
    )


@pytest.fixture(
    params=[
        "arrays",
        pytest.param("files", marks=pytest.mark.slow),
        pytest.param("records", marks=pytest.mark.slow),
    ]
)
def data(request, tree, records):
    if request.param == "arrays":
        return in_memory()
    if request.param == "files":
        return image_data.load_folders(tree, 0.2, seed=0)
    return image_data.load_records(records, 0.2)


def make(data, batch=5, seed=0, augment=False, leave_out=lambda name: None):
    return image_batches.ImageBatches(data, 8, batch, seed, augment, leave_out)


def levels(batch):
    """What tells the images apart: their brightness, known from one pixel."""
    return batch[0][:, 4, 4, 0].numpy().tolist()


def test_a_pass_has_every_image_once_and_its_class(data):
    batches = list(make(data).training().take(4))
    seen = [level for batch in batches for level in levels(batch)]
    num_train = len(data.train)
    assert [len(batch[0]) for batch in batches] == [5, 5, 5, num_train - 15]
    held_out = [x for batch in make(data).held_out() for x in levels(batch)]
    assert sorted(seen + held_out) == [10 * k for k in range(20)]
    for pixels, classes in batches:
        assert (pixels.dtype, classes.dtype) == (tf.uint8, tf.float32)
        expected = [int(level >= 100) for level in levels((pixels,))]
        assert np.argmax(classes, 1).tolist() == expected


def test_passes_differ_and_follow_from_the_seed(data):
    first = [levels(batch) for batch in make(data).training().take(8)]
    again = [levels(batch) for batch in make(data).training().take(8)]
    other = [levels(batch) for batch in make(data, seed=1).training().take(8)]
    assert first == again != other
    assert first[:4] != first[4:]


def test_a_resumed_run_sees_what_it_would_have_seen(data):
    batches = make(data, augment=True)
    whole = list(batches.training().take(7))
    resumed = list(batches.training(first_step=5).take(2))
    for expected, batch in zip(whole[5:], resumed):
        np.testing.assert_array_equal(expected[0], batch[0])
        np.testing.assert_array_equal(expected[1], batch[1])


def test_held_out_images_have_a_known_number_of_batches(data):
    held_out = make(data, batch=3).held_out()
    assert int(held_out.cardinality()) == -(-len(data.held_out) // 3)


def test_augmentation_is_for_training_only(tree):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 8, 8, 3), "uint8")
    data = in_memory()
    part = image_data.LabelledImages(
        pixels[: len(data.train)], data.train.labels
    )
    data = image_data.ImageData(part, part, 2, "", (8, 8, 3))
    batches = make(data, batch=len(part), augment=True)
    (shown, _), *_ = batches.held_out()
    np.testing.assert_array_equal(shown, part.images)
    (moved, _), *_ = batches.training().take(1)
    assert sorted(moved.numpy().sum((1, 2, 3))) != sorted(
        part.images.sum((1, 2, 3))
    )


def test_damaged_files_are_left_out_and_named(tmp_path):
    for k in range(12):
        path = tmp_path / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(10 * k))
    whole = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "0.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "b" / "1.png").write_bytes(b"")
    data = image_data.load_folders(tmp_path, 0.25, seed=3)
    named = set()
    batches = make(data, batch=9, leave_out=named.add)
    broken = {str(tmp_path / "a" / "0.png"), str(tmp_path / "b" / "1.png")}
    for part, shown in (
        (data.train, batches.training().take(2)),
        (data.held_out, batches.held_out()),
    ):
        whole = len(set(part.images) - broken)
        assert {len(pixels) for pixels, _ in shown} == {whole}
    assert named == {name.encode() for name in broken}


def test_records_with_labels_out_of_range_are_left_out(records):
    data = image_data.load_records(records, 0.2, num_classes=1)
    named = set()
    batches = make(data, leave_out=named.add)
    for pixels, _ in batches.training().take(2):
        assert max(levels((pixels,))) < 100
    assert named and all(b" record " in name for name in named)


def test_nothing_that_can_be_decoded_is_refused_before_training(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        for k in range(3):
            (tmp_path / name / f"{k}.jpg").write_bytes(b"text")
    with pytest.raises(InputError, match="JPEG.* Received: .*jpg, which can't"):
        make(image_data.load_folders(tmp_path, 0.5, seed=0))
