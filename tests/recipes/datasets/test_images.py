"""Data sets that others provide, and drawn ones."""

import urllib.error

import keras
import numpy as np
import pytest

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import images


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


def test_the_seed_decides_what_is_drawn():
    drawn, labels = images.draw(40, 16, seed=3)
    again, _ = images.draw(40, 16, seed=3)
    other, _ = images.draw(40, 16, seed=4)
    np.testing.assert_array_equal(drawn, again)
    assert (drawn != other).mean() > 0.5
    assert drawn.shape == (40, 16, 16, 3)
    assert (drawn.dtype, labels.dtype) == (np.uint8, np.int32)
    # Classes are equally frequent.
    np.testing.assert_array_equal(np.bincount(labels), np.full(10, 4))


def test_the_shape_is_brighter_than_its_background_and_a_ring_has_a_hole():
    drawn, labels = images.draw(600, 32)
    disc, ring, striped = (
        drawn[labels == images.CLASS_NAMES.index(name)].mean(axis=(0, 3))
        for name in ("plain disc", "plain ring", "striped disc")
    )
    centre = (slice(14, 18), slice(14, 18))
    assert disc[centre].mean() > disc[:2].mean() + 80
    assert ring[centre].mean() < disc[centre].mean() - 60
    # Half of a striped filling is dark.
    assert striped[centre].mean() < disc[centre].mean() - 40
