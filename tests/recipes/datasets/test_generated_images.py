"""Drawn images: the same by seed, and of classes that can be told apart."""

import numpy as np

from kerasmgpu.recipes.datasets import generated_images


def test_the_seed_decides():
    images, labels = generated_images.generate(40, 16, seed=3)
    again, _ = generated_images.generate(40, 16, seed=3)
    other, _ = generated_images.generate(40, 16, seed=4)
    np.testing.assert_array_equal(images, again)
    assert (images != other).mean() > 0.5
    assert images.shape == (40, 16, 16, 3)
    assert (images.dtype, labels.dtype) == (np.uint8, np.int32)


def test_classes_are_equally_frequent():
    _, labels = generated_images.generate(50, 8)
    np.testing.assert_array_equal(np.bincount(labels), np.full(10, 5))


def test_the_shape_is_brighter_than_its_background_and_a_ring_has_a_hole():
    images, labels = generated_images.generate(600, 32)
    means = [images[labels == k].mean(axis=(0, 3)) for k in range(10)]
    disc = means[generated_images.CLASS_NAMES.index("plain disc")]
    ring = means[generated_images.CLASS_NAMES.index("plain ring")]
    striped = means[generated_images.CLASS_NAMES.index("striped disc")]
    centre = (slice(14, 18), slice(14, 18))
    assert disc[centre].mean() > disc[:2].mean() + 80
    assert ring[centre].mean() < disc[centre].mean() - 60
    # Half of a striped filling is dark.
    assert striped[centre].mean() < disc[centre].mean() - 40
