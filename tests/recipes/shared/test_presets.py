"""Presets: settings of experiments by name, in place of a recipe's defaults."""

import pathlib

import pytest
from absl import flags

from kerasmgpu.errors import InputError
from kerasmgpu.recipes import (
    alexnet,
    autoencoder,
    convnet,
    deepconn,
    polynomial,
)
from kerasmgpu.recipes.shared import shared_flags

RECIPES = [alexnet, autoencoder, deepconn, polynomial]
CHECKOUT = pathlib.Path(__file__).parents[3] / "recipes"


def settings(recipe, **keywords):
    return shared_flags.settings(recipe.define_flags, keywords)


def test_a_preset_stands_in_place_of_defaults():
    assert settings(autoencoder).global_batch_size is None
    chosen = settings(autoencoder, preset="autorec")
    assert chosen.global_batch_size == 250
    assert not hasattr(chosen, "preset")


@pytest.mark.parametrize(
    "recipe, published",
    [
        (
            autoencoder,
            dict(
                hidden_units=["10", "5", "10"],
                learning_rate=0.03,
                global_batch_size=250,
                steps=10_000,
            ),
        ),
        (
            deepconn,
            dict(words=800, learning_rate=1e-4, global_batch_size=32, epochs=5),
        ),
        (
            polynomial,
            dict(learning_rate=0.1, global_batch_size=100, steps=1000),
        ),
    ],
)
def test_published_presets_are_the_published_experiments(recipe, published):
    data = data_for(recipe, "published")
    chosen = vars(settings(recipe, preset="published", **data))
    assert chosen | published == chosen


def test_what_is_given_stands_in_place_of_the_presets():
    chosen = settings(autoencoder, preset="autorec", global_batch_size=100)
    assert chosen.global_batch_size == 100
    chosen = settings(autoencoder, preset="autorec", batch_size_per_replica=64)
    assert chosen.global_batch_size is None
    assert chosen.batch_size_per_replica == 64
    chosen = settings(autoencoder, preset="published", epochs=2)
    assert (chosen.epochs, chosen.steps) == (2, None)


def test_an_unknown_preset_ends_with_those_there_are():
    with pytest.raises(
        InputError,
        match="autorec, large, published. Received: autorecs .is aut",
    ):
        settings(autoencoder, preset="autorecs")


@pytest.mark.parametrize("recipe", RECIPES)
def test_flag_files_of_the_checkout_name_presets(recipe):
    name = recipe.__name__.rpartition(".")[-1]
    files = sorted((CHECKOUT / name).glob("*.flags"))
    presets = pathlib.Path(recipe.__file__).parent.glob("presets/*.flags")
    assert [path.name for path in files] == sorted(p.name for p in presets)
    for path in files:
        values = flags.FlagValues()
        recipe.define_flags(values)
        values(["command", f"--flagfile={path}"])
        assert values.preset == path.stem
        settings(recipe, preset=path.stem, **data_for(recipe, path.stem))


def data_for(recipe, preset):
    """The data that a preset can't do without."""
    needs = {(alexnet, "alexnet_imagenet"), (alexnet, "resnet50_imagenet")}
    needs.add((deepconn, "published"))
    return {"data_path": __file__} if (recipe, preset) in needs else {}


@pytest.mark.parametrize(
    "recipe, preset, what",
    [
        (alexnet, "alexnet_imagenet", "the folder of ImageNet's images"),
        (alexnet, "resnet50_imagenet", "the folder of ImageNet's images"),
        (deepconn, "published", "reviews_Amazon_Instant_Video_5.json.gz"),
    ],
)
def test_a_preset_that_needs_data_says_so(recipe, preset, what):
    told = f"^--preset={preset} needs --data_path: {what}"
    with pytest.raises(InputError, match=told):
        recipe.run(preset=preset)
    values = flags.FlagValues()
    recipe.define_flags(values)
    assert f"{preset} (with --data_path)" in values["preset"].help


def test_other_data_may_be_named_instead():
    chosen = settings(alexnet, preset="alexnet_imagenet", dataset="digits")
    assert chosen.dataset == "digits"


def test_a_configuration_and_a_preset_contradict_each_other():
    with pytest.raises(InputError, match="--preset and --config"):
        convnet.run(preset="gratings", config="net.yaml")
    with pytest.raises(InputError, match="fashion_mnist, gratings"):
        convnet.run(preset="grating")
