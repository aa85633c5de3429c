"""One n_gpus: the same training, restored on any number of devices."""

import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import convnet
from kerasmgpu.recipes.convnet import example

PRESETS = pathlib.Path(convnet.__file__).parent / "presets"
EXAMPLE = (PRESETS / "gratings.yaml").read_text()
# 90 rows in batches of 25: the last has 15, which 4 devices share unevenly.
SMALL = [
    "model.filters=[4]",
    "dataset.num_images=90",
    "training.global_batch_size=25",
    "training.epochs=2",
]


def run(*overrides, virtual_devices=4, **keywords):
    return convnet.run(
        set=[*SMALL, *overrides], virtual_devices=virtual_devices, **keywords
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of a run on 4 devices, and its predictions."""
    folder = tmp_path_factory.mktemp("trained")
    path = folder / "predictions.npy"
    run(
        "model.n_gpus=4",
        output_dir=str(folder / "run"),
        predictions=str(path),
    )
    return folder / "run", np.load(path)


@pytest.mark.parametrize("n_gpus", [2, 0])
def test_restored_on_fewer_devices_it_predicts_the_same(
    trained, n_gpus, tmp_path
):
    folder, expected = trained
    path = tmp_path / "predictions.npy"
    result = run(
        f"model.n_gpus={n_gpus}", restore=str(folder), predictions=str(path)
    )
    assert result is None
    predictions = np.load(path)
    assert predictions.shape == (22, 8)
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-6)


def test_one_and_four_devices_train_the_same_model(trained):
    folder, _ = trained
    four = json.loads((folder / "result.json").read_text())
    one = run("model.n_gpus=0")
    assert (four["replicas"], one.replicas) == (4, 1)
    assert four["steps"] == one.steps == 8
    assert four["loss"] == pytest.approx(one.loss, abs=1e-5)
    assert four["figures"] == pytest.approx(one.figures, abs=1e-5)


def test_the_folder_has_the_configuration_as_run(trained):
    folder, _ = trained
    text = (folder / "config.yaml").read_text()
    assert "n_gpus: 4" in text and "num_images: 90" in text
    # It is a configuration, and its flags are flags.
    result = convnet.run(
        config=str(folder / "config.yaml"), virtual_devices=4, num_replicas=1
    )
    assert result.global_batch_size == 25


@pytest.mark.slow
def test_the_example_is_learned():
    result = convnet.run(set=["training.epochs=2"])
    assert result.figures["val_accuracy"] > 0.9


# 4 steps a pass and 3 an epoch: it goes on in the middle of a pass.
LENGTH = ("training.epochs=3", "training.steps_per_epoch=3")


@pytest.fixture(scope="module")
def whole():
    """The result of a run that is never interrupted."""
    return run(*LENGTH)


@pytest.mark.nightly
def test_a_longer_run_is_as_if_it_had_been_longer_from_the_start(
    whole, tmp_path
):
    keywords = dict(output_dir=str(tmp_path))
    run(*LENGTH, "training.epochs=1", **keywords)
    with pytest.raises(
        InputError, match="Received: model.n_gpus=2; .* had model.n_gpus=0"
    ):
        run(*LENGTH, "model.n_gpus=2", resume=True, **keywords)
    resumed = run(*LENGTH, resume=True, **keywords)
    assert (resumed.loss, resumed.figures) == (whole.loss, whole.figures)
    with pytest.raises(InputError, match="epochs=2; .* had training.epochs=3"):
        run(*LENGTH, "training.epochs=2", resume=True, **keywords)


def shuffled_batches(steps):
    """A data set that makes its batches: a pass has `steps` of them."""
    (x, y), _ = example.gratings(90).values()
    rows = tf.data.Dataset.from_tensor_slices((x, y)).take(25 * steps)
    return rows.shuffle(90, seed=4).batch(25)


class Sequence(keras.utils.PyDataset):
    """The same of a class, in an order that changes with the epoch."""

    def __init__(self, steps):
        super().__init__()
        self._steps, self._epoch = steps, 0
        (self._x, self._y), _ = example.gratings(90).values()

    def __len__(self):
        return self._steps

    def __getitem__(self, index):
        rows = slice((index + self._epoch) % 3 * 25, None)
        return self._x[rows][:25], self._y[rows][:25]

    def on_epoch_end(self):
        self._epoch += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, steps_per_epoch",
    [("shuffled_batches", 2), ("Sequence", None)],
)
def test_data_that_make_their_batches_go_on(
    tmp_path, preempt_after, kind, steps_per_epoch
):
    config = EXAMPLE.replace(
        "class: kerasmgpu.recipes.convnet.example.gratings\n  num_images: 4000",
        f"class: {__name__}.{kind}\n  steps: 3",
    ).replace("  global_batch_size: 100\n", "")
    (tmp_path / "net.yaml").write_text(config)
    overrides = ["model.filters=[4]", "training.epochs=3"]
    if steps_per_epoch:
        overrides.append(f"training.steps_per_epoch={steps_per_epoch}")
    keywords = dict(config=str(tmp_path / "net.yaml"), set=overrides)
    whole = convnet.run(**keywords)
    keywords["output_dir"] = str(tmp_path / "run")
    steps_per_epoch = steps_per_epoch or 3
    preempt_after(steps_per_epoch + 1, convnet.run, **keywords)
    resumed = convnet.run(**keywords, resume=True)
    assert (resumed.loss, resumed.figures) == (whole.loss, whole.figures)
    assert resumed.steps == 3 * steps_per_epoch


def test_a_callback_may_end_the_training(tmp_path):
    callback = (
        "callbacks=[{class: keras.callbacks.EarlyStopping, monitor: loss, "
        "min_delta: 100, patience: 1}]"
    )
    keywords = dict(output_dir=str(tmp_path))
    result = run(callback, "training.epochs=9", **keywords)
    assert result.steps == 2 * 4
    again = run(callback, "training.epochs=9", resume=True, **keywords)
    assert again == result


def test_presets_are_complete():
    from kerasmgpu.recipes.convnet import yaml_sections

    for path in PRESETS.glob("*.yaml"):
        assert "n_gpus" in yaml_sections.load(path)["model"]


@pytest.mark.parametrize(
    "override, message",
    [
        ("model.n_gpus=-1", "model.n_gpus must be an integer of at least 0"),
        ("model.n_gpus=two", "Received: 'two'"),
        ("model.n_gpus=5", "num_replicas=5, but no GPU"),
        ("model.class=no_nets.Net", "there is no module no_nets"),
        (
            "model.class=keras.layers.ReLU",
            "model.filters is no keyword|refused",
        ),
        ("model.filters=5", "model.class .* refused its keywords"),
        ("model.units=5", "model.class .* refused its keywords"),
        ("dataset.num_image=5", "dataset.num_image is no keyword"),
        ("dataset.num_images=0", "with the same rows, one at least"),
        ("dataset.size=1", "model.class can't take the inputs"),
        ("optimizer.class=keras.layers.ReLU", "optimizer"),
        ("loss=sparse", "loss must have names of Keras .* Received: 'sparse'"),
        ("metrics=[exactness]", "metrics must have names .* 'exactness'"),
        ("metrics=accuracy", "metrics must be a list"),
        ("callbacks=[{class: keras.layers.ReLU}]", "callbacks must be a list"),
        ("training.epochs=0", "training.epochs must be .* at least 1"),
        ("training.epoch=3", r"training.epoch is not known \(is epochs meant"),
        (
            "modell=3",
            r"modell is not known \(is model meant\?\); there are: model",
        ),
        ("optimizer=adam", "optimizer must be a mapping of keys"),
    ],
)
def test_mistakes_in_the_file_name_the_key(override, message, tmp_path):
    with pytest.raises(InputError, match=message) as raised:
        run(override, output_dir=str(tmp_path))
    assert "\n" not in str(raised.value).strip()
    # Nothing is in the way of the run that is mended.
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(predictions="no/folder/p.npy"), "can't be written"),
        (dict(predictions="there.npy"), "exists and is not overwritten"),
        (dict(restore="no/run", predictions="p.csv"), "has no model.keras"),
        (
            dict(restore="run", predictions="p.csv", output_dir="run"),
            "trains nothing",
        ),
    ],
)
def test_flags_that_cannot_be_meant(keywords, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.npy").write_text("")
    with pytest.raises(InputError, match=message):
        run(**keywords)


def test_gpus_that_are_not_there_are_not_the_cpu():
    with pytest.raises(InputError, match="n_gpus is 1, but no GPU is visible"):
        run("model.n_gpus=1", virtual_devices=None)


def test_another_models_weights_are_refused(trained, tmp_path):
    with pytest.raises(
        InputError, match="model.keras is damaged, or not of this model"
    ):
        run(
            "model.filters=[4, 4]",
            restore=str(trained[0]),
            predictions=str(tmp_path / "p.npy"),
        )


def test_the_line_is_told(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text(EXAMPLE.replace("epochs", "epoch"))
    number = 1 + path.read_text().splitlines().index("  epoch: 5")
    with pytest.raises(
        InputError, match=f"net.yaml, line {number}: training.epoch is"
    ):
        convnet.run(config=str(path))
