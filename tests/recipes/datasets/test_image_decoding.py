"""From bytes to pixels, against pixels worked out by hand."""

import io

import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.recipes.datasets import image_decoding


def striped(height, width):
    """Columns of three brightnesses: 0, 120 and 240."""
    columns = np.arange(width) * 3 // width * 120
    return np.broadcast_to(columns[None, :, None], (height, width, 3)).astype(
        np.uint8
    )


ENCODERS = {
    "jpeg": lambda image: tf.io.encode_jpeg(image, quality=100),
    "png": tf.io.encode_png,
}


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_centre_is_cut_out_of_any_format(encoder):
    encoded = ENCODERS[encoder](striped(40, 120))
    image = image_decoding.central_crop(encoded, 8)
    assert image.shape == (8, 8, 3)
    assert image.dtype == tf.uint8
    # The middle 35 of 120 columns are all of the middle stripe.
    np.testing.assert_allclose(image, np.full((8, 8, 3), 120), atol=2)


@pytest.mark.parametrize("progressive", [False, True])
def test_images_in_the_four_colours_of_print_are_read(progressive):
    # What matplotlib, which draws the tests' plots, writes its images with.
    pil = pytest.importorskip("PIL.Image")
    colour = np.full((40, 60, 3), (200, 100, 20), np.uint8)
    file = io.BytesIO()
    pil.fromarray(colour).convert("CMYK").save(
        file, "JPEG", quality=100, progressive=progressive
    )
    assert pil.open(file).mode == "CMYK"
    for image in (
        image_decoding.central_crop(file.getvalue(), 8),
        image_decoding.random_crop(file.getvalue(), 8, tf.constant([1, 2])),
    ):
        np.testing.assert_allclose(image, colour[:8, :8], atol=3)


def test_grey_images_get_three_channels():
    encoded = tf.io.encode_png(np.full((9, 9, 1), 50, np.uint8))
    np.testing.assert_array_equal(
        image_decoding.central_crop(encoded, 8), np.full((8, 8, 3), 50)
    )


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_random_crop_follows_from_its_seed(encoder):
    encoded = ENCODERS[encoder](striped(64, 64))
    crops = [
        image_decoding.random_crop(encoded, 16, tf.constant([seed, 0])).numpy()
        for seed in (1, 1, 2, 3, 4, 5)
    ]
    np.testing.assert_array_equal(crops[0], crops[1])
    assert len({crop.tobytes() for crop in crops}) > 2
    assert all(crop.shape == (16, 16, 3) for crop in crops)


def test_shifting_moves_by_four_pixels_at_most_and_may_mirror():
    images = np.zeros((200, 12, 12, 1), np.uint8)
    images[:, 6, 5] = 255
    found = {
        may_flip: np.argwhere(
            image_decoding.shift_and_flip(
                tf.constant(images), tf.constant([0, 1]), may_flip
            ).numpy()[..., 0]
        )
        for may_flip in (False, True)
    }
    for places in found.values():
        assert len(places) == 200
        assert set(places[:, 1]) == set(range(2, 11))
    assert set(found[False][:, 2]) == set(range(1, 10))
    # Column 5 of 12 is column 6 in a mirror.
    assert set(found[True][:, 2]) == set(range(1, 11))


def test_resizing_keeps_bytes():
    images = tf.constant(striped(6, 6)[None])
    assert image_decoding.resize(images, 6) is images
    larger = image_decoding.resize(images, 12)
    assert larger.shape == (1, 12, 12, 3)
    assert larger.dtype == tf.uint8
