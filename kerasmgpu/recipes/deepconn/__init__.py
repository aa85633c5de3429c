"""Ratings from reviews, with one model's layers on one device or on several.

    python -m kerasmgpu.recipes.deepconn

DeepCoNN reads what a user wrote on other items and what others wrote on the
item, in two towers, and predicts the rating. The recipe trains it with all
layers on one device, with a tower per device, with layers on alternating
devices and with a copy per device, from the same initial weights, and ends
with the seconds per epoch and the copies between devices of each. Without
`--data_path` the reviews are generated.

The command above takes 64 seconds on two CPU cores, where two logical devices
stand in for GPUs, and reaches a held-out MSE of 0.256 (biases alone: 1.271)
with every placement on one replica; a step copies 14 times between devices with
a tower per device. Presets and more results: `recipes/deepconn/`.
"""

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from absl import flags

from kerasmgpu import _import_on_use
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import run_folder, shared_flags
from kerasmgpu.recipes.shared.flag_definitions import Definitions
from kerasmgpu.recipes.shared.training_plan import TrainingPlan
from kerasmgpu.stores.places import local_copy

_import_on_use(__name__)

if TYPE_CHECKING:
    import keras

    from kerasmgpu.recipes.datasets.reviews import Reviews
    from kerasmgpu.recipes.deepconn.placements import Row
    from kerasmgpu.recipes.shared.training_run import TrainingRun


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this recipe's flags; each is a keyword of `run`."""
    shared_flags.define_preset(flag_values, define_flags)
    shared_flags.define(
        flag_values,
        batch_size_per_replica=32,
        learning_rate=0.001,
        learning_rate_scaling="sqrt",
        epochs=5,
        # Held, so that every placement trains the same model.
        global_batch_size=32,
    )
    flag = Definitions(flag_values)
    # fmt: off
    shared_flags.define_data(flag_values, path_help=
        "Amazon reviews as JSON lines, plain or compressed by gzip. Left out: "
        "reviews are generated.")
    flag.choice("placement", "all",
        ["all", "single", "dual", "exaggerated", "data_parallel"],
        "single: all layers on one device; dual: a tower per device; "
        "exaggerated: layers on alternating devices; data_parallel: a copy of "
        "the model per device; all: one after the other, compared.")
    # At least a convolution over 3 words and a maximum of 2 of its outputs.
    flag.integer("words", 100, "Words of a text, the user's and the item's.",
        least=4, most=100_000)
    flag.integer("vocabulary", 20_000,
        "Most words to know; rarer ones are all alike.", most=10**8)
    shared_flags.define_held_out(flag_values, 0.1,
        "Fraction of the reviews that is held out.")
    flag.integer("profile_steps", 20,
        "Steps to profile after the training; 0: none.", least=0, most=10**6)
    flag.string("profile_dir", None,
        "Folder to keep the profiles in, for TensorBoard.")
    # fmt: on


def build_model(
    settings: SimpleNamespace,
    data: SimpleNamespace,
    plan: TrainingPlan,
    devices: Sequence[str],
) -> "keras.Model":
    """Builds and compiles the network with its layers on the devices."""
    import keras

    from kerasmgpu import placement
    from kerasmgpu.recipes.deepconn import towers

    keras.utils.set_random_seed(settings.seed)
    place = towers.placer(settings.placement, devices)
    model = towers.deepconn(data.vocabulary_size, settings.words, place)
    learning_rate = plan.schedule("none", settings.learning_rate)
    optimizer = keras.optimizers.Adam(learning_rate)
    if settings.placement != "data_parallel":
        optimizer = placement.place_updates(optimizer)
    # XLA can't compile for several devices; all placements are alike in this.
    model.compile(optimizer, loss="mse", jit_compile=False)
    return model


def check(settings: SimpleNamespace) -> None:
    """Validates combinations of this recipe's settings."""
    one_replica = settings.placement in ("single", "dual", "exaggerated")
    if one_replica and settings.num_replicas not in (None, 1):
        raise InputError(
            f"--placement={settings.placement} trains one replica; "
            "--num_replicas is for data_parallel and all. Received: "
            f"--num_replicas={settings.num_replicas}"
        )


def prepare(settings: SimpleNamespace, loaded: "Reviews") -> SimpleNamespace:
    """Splits the reviews, builds their texts and fits the baselines.

    Returns `texts` (`ReviewTexts`), `reviews`, the numbers of those to `train`
    on and `held_out`, the `vocabulary_size`, and the held-out `mean_mse` and
    `biases_mse` of two baselines.
    """
    import numpy as np

    from kerasmgpu.recipes.datasets import ratings, review_texts

    train, held_out = loaded.split(settings.held_out, settings.seed)
    size, tokens = review_texts.vocabulary(loaded, train, settings.vocabulary)
    known, hidden = loaded.as_ratings(train), loaded.as_ratings(held_out)
    biases = ratings.fit_biases(known)
    mean = np.float64(biases.mean)
    return SimpleNamespace(
        texts=review_texts.ReviewTexts(loaded, tokens, train, settings.words),
        reviews=loaded,
        train=train,
        held_out=held_out,
        vocabulary_size=size,
        mean_mse=float(np.mean((hidden.values - mean) ** 2)),
        biases_mse=biases.root_mean_squared_error(hidden) ** 2,
    )


def run(**keywords: Any) -> "Row | list[Row]":
    """Trains with one placement, or with all; every flag is a keyword."""
    settings = shared_flags.settings(define_flags, keywords)
    check(settings)
    run_folder.require_place(settings)
    from kerasmgpu.recipes.datasets import reviews

    path = settings.data_path
    loaded = reviews.load(local_copy(path)) if path else reviews.generate()
    # TensorFlow is imported only once the file has been read.
    from kerasmgpu.recipes.deepconn import placements

    # First: logical devices can't be made once TensorFlow has computed.
    devices = placements.choose_devices(settings)
    data = prepare(settings, loaded)
    if settings.placement == "all":
        return run_all(settings, data, devices)
    return run_one(settings, data, placements.start(settings, devices))


def run_all(
    settings: SimpleNamespace, data: SimpleNamespace, devices: list[str]
) -> "list[Row]":
    """Trains with one placement after the other, and compares them.

    Each has its own folder in `--output_dir`; `--resume` continues with the
    interrupted placement.
    """
    from kerasmgpu.recipes.deepconn import placements
    from kerasmgpu.recipes.shared import training_plan

    folder = run_folder.RunFolder(settings.output_dir, settings)
    # Refuses settings before the folder holds a run.
    training_plan.make(settings, len(devices), len(data.train))
    folder.start()
    rows = [
        run_one(one, data, placements.start(one, devices))
        for one in placements.settings_of_each(settings)
    ]
    if folder.path is not None:
        folder.keep_flags()
        folder.write_json("placements.json", [*map(dataclasses.asdict, rows)])
    placements.print_table(rows)
    return rows


def run_one(
    settings: SimpleNamespace, data: SimpleNamespace, experiment: "TrainingRun"
) -> "Row":
    """Trains with one placement, then profiles some more steps."""
    from kerasmgpu.recipes.datasets import review_texts
    from kerasmgpu.recipes.deepconn import placements
    from kerasmgpu.recipes.shared import run_report

    # The global batch and its learning rate, the length and the warm-up.
    plan = experiment.plan_for(len(data.train))
    run_report.print_line(f"placement: {settings.placement}")
    experiment.begin(data.reviews.description)
    with experiment.strategy.scope():
        model = build_model(settings, data, plan, experiment.devices)
    training, validation = review_texts.training_and_validation(
        data.texts,
        data.reviews.ratings,
        data.train,
        data.held_out,
        plan.global_batch_size,
        settings.seed,
        experiment.first_step,
    )
    progress = {"loss": "training MSE", "val_loss": "held-out MSE"}
    model.fit(
        training,
        validation_data=validation,
        **experiment.fit_settings(progress),
    )
    mse = experiment.history[-1]["val_loss"]
    figures = {
        "mse": ("held-out MSE", mse),
        "rmse": ("held-out RMSE (stars)", math.sqrt(mse)),
        "biases_mse": ("biases alone, held-out MSE", data.biases_mse),
        "mean_mse": ("mean alone, held-out MSE", data.mean_mse),
    }
    curves = {"loss": "training", "val_loss": "held out"}
    curve = run_report.Curve("MSE", curves, data.biases_mse, "biases alone")
    notes = {}
    if mse > data.biases_mse:
        notes["mse"] = (
            "worse than biases alone: too few steps to learn from the texts"
        )
    result = experiment.finish(
        model, "loss", "training MSE", figures, curve, notes
    )
    # Last, since the profiled steps train the model further.
    row = placements.Row(
        settings.placement,
        placements.seconds_per_epoch(experiment.history),
        placements.profile(settings, model, training),
        result,
    )
    placements.print_operations(row)
    return row
