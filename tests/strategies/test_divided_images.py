"""Rows of images, and steps of signals, are divided over a mesh, exactly."""

import keras
import numpy as np
import pytest

import kerasmgpu
from tests.strategies.test_divided_inputs import (
    assert_same,
    compiled,
    mesh_of,
    on_mesh,
    trained,
)

layers = keras.layers
HEIGHT, WIDTH = 13, 6


def conv(x, units=3, window=3, **kwargs):
    return layers.Conv2D(units, window, padding="same", **kwargs)(x)


def u_net():
    """A residual block with a stride of 2, a pool, and their way back up."""
    keras.utils.set_random_seed(1)
    images = keras.Input((HEIGHT, WIDTH, 2), name="images")
    skip = x = conv(images, window=5)
    x = layers.BatchNormalization()(conv(x, strides=2))
    x = keras.ops.relu(x + conv(skip, window=1, strides=2))
    x = layers.MaxPooling2D(3, 2, padding="same")(x)
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.Conv2DTranspose(3, 3, strides=(2, 1), padding="same")(x)
    x = layers.AveragePooling2D(3, 1, padding="same")(x[:, :7])
    x = conv(layers.UpSampling2D((2, 3))(x), dilation_rate=2)
    x = layers.Concatenate()([x[:, :HEIGHT, :WIDTH], skip])
    return compiled(images, conv(layers.ZeroPadding2D(1)(x), window=4))


def images(model):
    random = np.random.default_rng(0)
    shapes = model.input_shape, model.output_shape
    return [random.normal(size=(8, *shape[1:])) for shape in shapes]


_known = []


@pytest.fixture
def of_one_device(float64):
    if not _known:
        _known.append(trained(u_net(), images(u_net())))
    return _known[0]


@pytest.mark.parametrize("shape", [(1, 3), (2, 2)])
def test_each_device_has_rows_of_images(shape, of_one_device):
    """13 rows over 3 and 2 devices, then 7, 4, 8, 16 and 15."""
    with on_mesh(shape, images__output=("batch", "tokens")):
        model = u_net()
        found = trained(model, images(model))
        table = kerasmgpu.layout_report(model, images(model))
    assert_same(found, of_one_device)
    kinds = {kind for layer in table.layers for kind in layer.sent}
    assert kinds == {"all_reduce", "send_rows"}


@pytest.mark.slow
def test_micro_batches_send_each_other_rows_of_images(of_one_device):
    layouts = keras.distribution.LayoutMap(mesh_of((2, 2)))
    layouts["images/output"] = ("batch", "tokens")
    kind = keras.distribution.ModelParallel(
        layout_map=layouts, batch_dim_name="batch"
    )
    strategy = kerasmgpu.strategy(distribution=kind, micro_batches=2)
    with strategy.scope():
        found = trained(u_net(), images(u_net()))
    assert_same(found, of_one_device)


@pytest.mark.slow
def test_rows_and_columns_are_divided(of_one_device):
    """Corners come by two neighbours."""
    with on_mesh((2, 3), images__output=(None, "batch", "tokens")):
        found = trained(u_net(), images(u_net()))
    assert_same(found, of_one_device)


def signals():
    keras.utils.set_random_seed(1)
    x = steps = keras.Input((17, 2), name="signals")
    x = layers.Conv1D(3, 3, padding="causal", dilation_rate=2)(x)
    x = layers.SeparableConv1D(3, 3, strides=2, padding="valid")(x)
    x = layers.Conv1DTranspose(3, 4, strides=2)(layers.MaxPooling1D(2, 1)(x))
    return compiled(steps, layers.GlobalMaxPooling1D()(x))


def volumes():
    keras.utils.set_random_seed(1)
    x = given = keras.Input((7, 4, 4, 2), name="volumes")
    x = layers.Conv3D(3, 3, padding="same", activation="relu")(x)
    x = layers.Conv3D(3, 3, strides=2, padding="same")(x)
    return compiled(given, layers.Conv3DTranspose(1, 2, strides=2)(x))


@pytest.mark.slow
@pytest.mark.parametrize("make", [signals, volumes])
def test_signals_and_volumes_are_divided(make, float64):
    expected = trained(make(), images(make()))
    name = f"{make.__name__}__output"
    with on_mesh((2, 3), **{name: ("batch", "tokens")}):
        found = trained(make(), images(make()))
    assert_same(found, expected)


def test_a_halo_is_what_is_sent_and_each_device_computes_its_rows():
    n, height, width, units, num_bytes = 4, 64, 16, 8, 4
    keras.utils.set_random_seed(1)
    with on_mesh((1, n), images__output=(None, "tokens")):
        x = given = keras.Input((height, width, units), name="images")
        for _ in range(3):
            x = conv(x, units, 3, use_bias=False)
        model = compiled(given, x)
        table = kerasmgpu.layout_report(model, images(model))
    assert table.computes == pytest.approx(1 / n, abs=0.01)
    rows = 8 * width * units * num_bytes
    # One row from each neighbour, of 2 images forward and 2 gradients back,
    # and of the input, whose halo is cut out of the whole batch.
    expected = 4 * 2 * (n - 1) / n * rows
    sent = sum(layer.sent["send_rows"] for layer in table.layers)
    assert sent == expected


def test_a_halo_is_joined_again_and_cpus_have_their_own_kernels(
    float64, tmp_path, monkeypatch
):
    """oneDNN computes no gradients with other paddings than the usual ones."""
    monkeypatch.setenv("KERASMGPU_DUMP", str(tmp_path))
    keras.utils.set_random_seed(1)
    with on_mesh((1, 3), images__output=(None, "tokens")):
        x = given = keras.Input((12, 6, 2), name="images")
        for _ in range(4):
            x = layers.ReLU()(conv(x, units=2))
        model = compiled(given, x)
        trained(model, images(model))
    (joined,) = tmp_path.glob("train_step_0*/*join_again.txt")
    copies = joined.read_text().count("JoinAgain(")
    # That of the last layer, and of the one before, are used soon enough.
    assert copies == 2
    (written,) = tmp_path.glob("train_step_0*/*write.txt")
    nodes = written.read_text().split("\nnode_def {")
    gradients = [one for one in nodes if 'op: "Conv2DBackprop' in one]
    assert gradients and not any("EXPLICIT" in one for one in gradients)
    again = [one for one in nodes if "concat" in one.lower() and '"^' in one]
    assert len(again) == 3 * copies
