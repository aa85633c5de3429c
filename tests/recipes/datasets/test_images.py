"""Images in memory: splitting, and data sets that others provide."""

import urllib.error

import keras
import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import image_data, images


def arrays(count):
    labels = np.arange(count, dtype=np.int32)
    return image_data.LabelledImages(
        np.zeros((count, 2, 2, 1), np.uint8), labels
    )


def test_every_image_is_on_one_side_of_the_split():
    train, held_out = arrays(10).split(0.3, seed=1)
    assert (len(train), len(held_out)) == (7, 3)
    both = np.sort(np.concatenate([train.labels, held_out.labels]))
    np.testing.assert_array_equal(both, np.arange(10))
    _, other = arrays(10).split(0.3, seed=2)
    assert set(other.labels) != set(held_out.labels)


def test_data_of_keras_get_a_channel_and_flat_labels(monkeypatch):
    part = np.zeros((4, 28, 28), np.uint8), np.zeros((4, 1), np.uint8)
    monkeypatch.setattr(
        keras.datasets.fashion_mnist, "load_data", lambda: (part, part)
    )
    data = images.fetched("fashion_mnist")
    assert data.train.images.shape == (4, 28, 28, 1)
    assert data.held_out.labels.shape == (4,)
    assert data.image_shape == (28, 28, 1)


def test_no_network_is_one_line(monkeypatch):
    def load_data():
        # What `keras.utils.get_file` does.
        try:
            raise urllib.error.URLError("no route")
        except urllib.error.URLError as error:
            raise Exception(
                f"URL fetch failure on https://x: {error}"
            ) from error

    monkeypatch.setattr(keras.datasets.cifar10, "load_data", load_data)
    with pytest.raises(InputError, match="cifar10 can't be fetched.*no route"):
        images.fetched("cifar10")


def test_other_errors_of_loading_stay_what_they_are(monkeypatch):
    def load_data():
        raise KeyError("a defect")

    monkeypatch.setattr(keras.datasets.cifar10, "load_data", load_data)
    with pytest.raises(KeyError):
        images.fetched("cifar10")


def test_digits_are_scaled_to_bytes():
    pytest.importorskip("sklearn")
    data = images.digits(0.2, seed=0)
    assert len(data.train) + len(data.held_out) == 1797
    assert data.train.images.shape[1:] == (8, 8, 1) == data.image_shape
    assert data.train.images.max() == 255
    assert set(data.train.labels) == set(range(10))
