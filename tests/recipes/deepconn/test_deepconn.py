"""The recipe from its keywords to its result, in every placement."""

import contextlib
import io
import json
import pathlib
import types

import keras
import numpy as np
import pytest

from kerasmgpu import placement
from kerasmgpu.callbacks.checkpoints import file_format
from kerasmgpu.errors import InputError
from kerasmgpu.recipes import deepconn
from kerasmgpu.recipes.datasets import reviews
from kerasmgpu.recipes.deepconn import placements, towers
from tests.recipes.datasets import written_data

PRESETS = pathlib.Path(deepconn.__file__).parent / "presets"


@pytest.fixture(scope="module")
def reviews_path(tmp_path_factory):
    """120 reviews: 30 users, 12 items."""
    path = tmp_path_factory.mktemp("data") / "reviews.json"
    written_data.write_reviews(path, reviews.generate(30, 12, 120))
    return path


def run(reviews_path, **keywords):
    return deepconn.run(
        **{
            "data_path": str(reviews_path),
            "words": 10,
            # 108 rows: the last batch has 12, the others 32.
            "epochs": 2,
            "profile_steps": 0,
            **keywords,
        }
    )


# Rounding has no time to grow in 4 steps.
LENGTH = dict(epochs=None, steps=4, steps_per_epoch=2)


@pytest.fixture(scope="module")
def compared(reviews_path, tmp_path_factory, preempt_after):
    """A comparison: its rows, its folder and what it printed.

    It was ended in the second placement and has gone on.
    """
    folder = tmp_path_factory.mktemp("compared")
    keywords = dict(profile_steps=2, output_dir=str(folder), **LENGTH)
    # In the second epoch of it, after its first step.
    preempt_after(4 + 3, run, reviews_path, **keywords)
    assert not (folder / "placements.json").exists()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        rows = run(reviews_path, resume=True, **keywords)
    return rows, folder, printed.getvalue()


@pytest.mark.slow
def test_all_placements_end_with_the_same_losses(compared):
    rows, folder, printed = compared
    assert [row.placement for row in rows] == list(towers.PLACEMENTS)
    assert [row.result.devices for row in rows] == [
        ["CPU:0"],
        *[["CPU:0", "CPU:1"]] * 3,
    ]
    assert [row.result.replicas for row in rows] == [1, 1, 1, 2]
    for row in rows[1:]:
        assert row.result.loss == pytest.approx(rows[0].result.loss, abs=1e-5)
        for name in ("mse", "mean_mse", "biases_mse"):
            assert row.result.figures[name] == pytest.approx(
                rows[0].result.figures[name], abs=1e-5
            )
    copies = {row.placement: row.profile.measured.copies.calls for row in rows}
    assert copies["single"] == 0
    assert 0 < copies["dual"] < copies["exaggerated"]
    assert copies["data_parallel"] > 0
    table = json.loads((folder / "placements.json").read_text())
    assert [row["placement"] for row in table] == list(towers.PLACEMENTS)
    assert table[1]["profile"]["measured"]["copies"]["calls"] == copies["dual"]
    assert "share in" in printed
    assert "Logical CPU devices share cores" in printed
    for name in towers.PLACEMENTS:
        assert (folder / name / "result.json").is_file()
    model = keras.models.load_model(folder / "dual" / "model.keras")
    assert model.get_layer("item_filters").device == "CPU:1"
    # What is saved has not been through the profiled steps.
    saved = model.get_weights()
    *_, checkpoint = sorted((folder / "dual" / "checkpoints").iterdir())
    with open(checkpoint, "rb") as file:
        _, arrays = file_format.read(file)
    for weight, other in zip(saved, arrays):
        np.testing.assert_array_equal(weight, other)


def test_what_is_refused_leaves_a_folder_to_be_used_again(
    reviews_path, tmp_path
):
    for keywords in (dict(held_out=2.0), dict(steps=7, steps_per_epoch=4)):
        with pytest.raises(InputError):
            run(reviews_path, output_dir=str(tmp_path), **keywords)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_the_default_data_are_learned(capsys):
    row = deepconn.run(
        placement="single",
        # Shorter texts and fewer steps than the default.
        words=40,
        epochs=3,
        learning_rate=0.002,
        profile_steps=0,
    )
    figures = row.result.figures
    assert figures["mse"] < 0.4 * figures["biases_mse"]
    assert figures["biases_mse"] < figures["mean_mse"]
    assert figures["rmse"] == pytest.approx(figures["mse"] ** 0.5)
    assert "generated, not real" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            path.name, marks=() if path.stem == "small" else pytest.mark.slow
        )
        for path in sorted(PRESETS.glob("*.flags"))
    ],
)
def test_presets_train(reviews_path, name, flags_of):
    keywords = flags_of(deepconn, PRESETS / name)
    keywords.update(placement="single", steps=2, epochs=None, profile_steps=0)
    row = run(reviews_path, **keywords)
    assert np.isfinite(row.result.loss)


def test_the_towers_are_those_described():
    model = towers.deepconn(vocabulary_size=1000, words=800)
    # 2 × (1000 × 50, 3 × 50 × 10 + 10, 797 × 10 × 64 + 64) and no more.
    assert model.count_params() == 2 * (50_000 + 1510 + 510_144)
    assert model.get_layer("user_maxima").output.shape == (None, 797, 10)
    assert model.get_layer("rating").output.shape == (None, 1)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("single", "000000 00000"),
        ("dual", "00000 11111 0"),
        ("exaggerated", "01010 10101 0"),
    ],
)
def test_layers_are_on_the_devices_of_the_placement(name, expected):
    place = towers.placer(name, ["CPU:0", "CPU:1"])
    model = towers.deepconn(20, 10, place)
    parts = ("embedding", "filters", "maxima", "flat", "features")
    layers = [f"{side}_{part}" for side in ("user", "item") for part in parts]
    devices = [model.get_layer(name).device for name in [*layers, "rating"]]
    assert "".join(d[-1] for d in devices) == expected.replace(" ", "")
    kinds = {type(layer) for layer in model.layers}
    assert kinds == {keras.layers.InputLayer, placement.OnDevice}


def test_baselines_are_fitted_on_the_training_part():
    generated = reviews.generate(5, 4, 12)
    settings = types.SimpleNamespace(
        held_out=0.2, seed=0, vocabulary=100, words=5
    )
    data = deepconn.prepare(settings, generated)
    known, hidden = (
        generated.ratings[rows].astype("float64")
        for rows in (data.train, data.held_out)
    )
    expected = np.mean((hidden - known.mean()) ** 2)
    assert data.mean_mse == pytest.approx(expected)


def test_the_first_epoch_is_left_out_of_the_mean():
    seconds = [{"seconds": 9.0}, {"seconds": 2.0}, {"seconds": 3.0}]
    assert placements.seconds_per_epoch(seconds) == 2.5
    assert placements.seconds_per_epoch(seconds[:1]) == 9.0


@pytest.mark.parametrize(
    "keywords, message",
    [
        (dict(profile_steps=-1), "--profile_steps: .* Received: -1"),
        (dict(held_out=1.0), "--held_out: .* below 1. Received: 1.0"),
        (
            dict(num_replicas=9, virtual_devices=8),
            "--placement=all needs 9 device",
        ),
        (
            dict(placement="dual", virtual_devices=1),
            "--placement=dual needs 2 device.*, but no GPU and 1 CPU device",
        ),
    ],
)
def test_bad_settings_are_refused(reviews_path, keywords, message):
    with pytest.raises(InputError, match=message):
        run(reviews_path, **keywords)
