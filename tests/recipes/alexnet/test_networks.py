"""Networks: parameters as published, and sizes that adapt."""

import keras
import numpy as np
import pytest

from kerasmgpu.recipes.alexnet import networks

IMAGENET = (224, 224, 3)


@pytest.fixture
def no_drawing(monkeypatch):
    """Weights are 0: to draw 60 million at random takes a second."""
    for kind in ("VarianceScaling", "RandomNormal"):
        monkeypatch.setattr(
            getattr(keras.initializers, kind),
            "__call__",
            lambda self, shape, dtype=None: keras.ops.zeros(shape, dtype),
        )


def num_parameters(model):
    return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


@pytest.mark.parametrize(
    "filters, expected",
    [
        # Worked out by hand from the layers of TensorFlow's benchmarks.
        ((64, 192, 384, 384, 256), 61_838_248),
        # torchvision.models.alexnet
        ((64, 192, 384, 256, 256), 61_100_840),
        # Both towers of 2012 with each connected to all.
        ((96, 256, 384, 384, 256), 62_378_344),
    ],
)
def test_alexnet_has_the_published_parameters(no_drawing, filters, expected):
    model = networks.alexnet(IMAGENET, 1000, filters=filters)
    assert num_parameters(model) == expected


@pytest.mark.slow
def test_resnet50_has_the_published_parameters(no_drawing):
    # torchvision.models.resnet50, which is v1.5.
    model = networks.resnet50(IMAGENET, 1000)
    assert num_parameters(model) == 25_557_032


@pytest.mark.slow
def test_resnet50_halves_in_the_3x3_convolutions():
    model = networks.resnet50(IMAGENET, 10, width=0.25)
    halving = [x for x in model.layers if getattr(x, "strides", 1) == (2, 2)]
    convolutions = [x for x in halving if isinstance(x, keras.layers.Conv2D)]
    sizes = sorted(layer.kernel_size for layer in convolutions)
    # A block's, three times; the first layer.
    assert sizes == [(3, 3)] * 3 + [(7, 7)]
    # The three blocks' shortcuts take every second pixel.
    poolings = [x for x in halving if isinstance(x, keras.layers.MaxPooling2D)]
    sizes = sorted(layer.pool_size for layer in poolings)
    assert sizes == [(1, 1)] * 3 + [(3, 3)]


@pytest.mark.slow
def test_wide_resnet_has_the_published_parameters(no_drawing):
    # 36.5 M in table 1 of the paper.
    model = networks.wide_resnet28((32, 32, 3), 10)
    assert num_parameters(model) == 36_479_194


@pytest.mark.parametrize(
    "name, size, channels",
    [
        ("alexnet", 8, 1),
        ("alexnet", 33, 3),
        ("alexnet", 128, 3),
        pytest.param("resnet50", 32, 1, marks=pytest.mark.slow),
        ("wide_resnet28", 8, 1),
    ],
)
def test_networks_take_raw_pixels_of_their_sizes(name, size, channels):
    assert size >= networks.MIN_IMAGE_SIZES[name]
    model = networks.build(name, (size, size, channels), 7, width=0.05)
    images = np.full((2, size, size, channels), 255, "uint8")
    logits = model(images)
    assert logits.shape == (2, 7)
    assert np.isfinite(logits).all()


@pytest.mark.parametrize(
    "name, size",
    [
        ("wide_resnet28", 8),
        pytest.param("resnet50", 32, marks=pytest.mark.slow),
    ],
)
def test_only_kernels_are_penalised(name, size):
    model = networks.build(name, (size, size, 3), 5, 0.05, 0.1)
    kernels = [v for v in model.trainable_variables if len(v.shape) > 1]
    expected = 0.05 * sum(float((v.numpy() ** 2).sum()) for v in kernels)
    model(np.zeros((1, size, size, 3), "uint8"))
    assert float(sum(model.losses)) == pytest.approx(expected, rel=1e-5)


def test_precision_is_of_the_layers_and_ends_with_the_context():
    with networks.precision("bfloat16"):
        model = networks.build("alexnet", (16, 16, 1), 3, 0.02)
    assert keras.config.dtype_policy().name == "float32"
    convolution = next(layer for layer in model.layers if "conv" in layer.name)
    assert convolution.compute_dtype == "bfloat16"
    assert convolution.variable_dtype == "float32"
    assert model.output.dtype == "float32"
