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

from absl import flags

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import early_checks, shared_flags


def define_flags(flag_values):
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
    shared_flags.define_data(
        flag_values,
        path_help="Amazon reviews as JSON lines, plain or compressed by gzip. "
        "Left out: reviews are generated.",
    )
    flags.DEFINE_enum(
        "placement",
        "all",
        ["all", "single", "dual", "exaggerated", "data_parallel"],
        "single: all layers on one device; dual: a tower per device; "
        "exaggerated: layers on alternating devices; data_parallel: a copy of "
        "the model per device; all: one after the other, compared.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "words",
        100,
        "Words of a text, the user's and the item's.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "vocabulary",
        20_000,
        "Most words to know; rarer ones are all alike.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "held_out",
        0.1,
        "Fraction of the reviews that is held out.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "profile_steps",
        20,
        "Steps to profile after the training; 0: none.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "profile_dir",
        None,
        "Folder to keep the profiles in, for TensorBoard.",
        flag_values=flag_values,
    )


def build_model(settings, data, plan, devices):
    """Builds and compiles the network with its layers on the devices."""
    import keras

    from kerasmgpu import placement
    from kerasmgpu.recipes.deepconn import review_towers
    from kerasmgpu.recipes.shared import optimizers

    keras.utils.set_random_seed(settings.seed)
    model = review_towers.deepconn(
        data.vocabulary_size,
        settings.words,
        review_towers.placer(settings.placement, devices),
    )
    optimizer = optimizers.build(
        "adam", plan, "none", initial_learning_rate=settings.learning_rate
    )
    if settings.placement != "data_parallel":
        optimizer = placement.place_updates(optimizer)
    # XLA can't compile for several devices; all placements are alike in this.
    model.compile(optimizer, loss="mse", jit_compile=False)
    return model


def check(settings):
    """Refuses this recipe's own settings that can't be meant."""
    # A convolution over 3 words and a maximum of 2 of its outputs.
    for name, minimum, maximum in (
        ("words", 4, 100_000),
        ("vocabulary", 1, 10**8),
        ("profile_steps", 0, 10**6),
    ):
        value = getattr(settings, name)
        if not minimum <= value <= maximum:
            bound = f"least {minimum}" if value < minimum else f"most {maximum}"
            raise InputError(f"--{name} must be at {bound}. Received: {value}")
    if settings.placement in ("single", "dual", "exaggerated"):
        if settings.num_replicas not in (None, 1):
            raise InputError(
                f"--placement={settings.placement} trains one replica; "
                "--num_replicas is for data_parallel and all. Received: "
                f"--num_replicas={settings.num_replicas}"
            )


@dataclasses.dataclass(frozen=True)
class Data:
    """Reviews, ready to make batches of, and what is known beforehand."""

    texts: object
    ratings: object
    train: object
    held_out: object
    vocabulary_size: int
    mean_mse: float
    biases_mse: float
    description: str


def load(settings):
    """Loads or generates the reviews, without TensorFlow."""
    from kerasmgpu.recipes.deepconn import generated_reviews, reviews

    if settings.data_path:
        return reviews.load(settings.data_path)
    return generated_reviews.generate()


def prepare(settings, loaded):
    """Splits reviews by the seed, makes texts of them and fits biases."""
    from kerasmgpu.recipes.deepconn import (
        review_baselines,
        review_texts,
        review_vocabulary,
    )

    train, held_out = loaded.split(settings.held_out, settings.seed)
    vocabulary = review_vocabulary.Vocabulary.fit(
        loaded, train, settings.vocabulary
    )
    mean_mse, biases_mse = review_baselines.squared_errors(
        loaded, train, held_out
    )
    return Data(
        review_texts.ReviewTexts(
            loaded, vocabulary.encode(loaded), train, settings.words
        ),
        loaded.ratings,
        train,
        held_out,
        vocabulary.size,
        mean_mse,
        biases_mse,
        loaded.description,
    )


def run(**keywords):
    """Trains with one placement, or with all; every flag is a keyword.

    Args:
        **keywords: See `--help`; what is left out has the flag's default.

    Returns:
        A `deepconn_comparison.Row`, or for `placement="all"` a list of them.

    Raises:
        InputError: If a setting, the data, the devices or the output folder
            can't be used.
    """
    settings = shared_flags.settings(define_flags, keywords)
    check(settings)
    early_checks.require_place(settings)
    loaded = load(settings)
    # TensorFlow comes in here: a file that can't be read was told before.
    from kerasmgpu.recipes.deepconn import deepconn_comparison as comparison

    # Before anything is computed: logical devices can't be made afterwards.
    devices = comparison.choose_devices(settings)
    data = prepare(settings, loaded)
    if settings.placement == "all":
        return run_all(settings, data, devices)
    return run_one(settings, data, comparison.start(settings, devices))


def run_all(settings, data, devices):
    """Trains with one placement after the other, and compares them.

    Each has a folder of its own in `--output_dir`; `--resume` goes on with the
    placement that was cut.
    """
    from kerasmgpu.recipes.deepconn import deepconn_comparison as comparison
    from kerasmgpu.recipes.shared import run_folder, training_plan

    folder = run_folder.RunFolder(settings.output_dir, settings)
    # What is refused is refused before the folder holds a run.
    training_plan.make(settings, len(devices), len(data.train))
    folder.start()
    rows = [
        run_one(one, data, comparison.start(one, devices))
        for one in comparison.settings_of_each(settings)
    ]
    if folder.path is not None:
        folder.keep_flags()
        folder.write_json("placements.json", [*map(dataclasses.asdict, rows)])
    comparison.print_table(rows)
    return rows


def run_one(settings, data, experiment):
    """Trains with one placement, then profiles some more steps."""
    from kerasmgpu.recipes.deepconn import deepconn_comparison as comparison
    from kerasmgpu.recipes.deepconn import review_batches
    from kerasmgpu.recipes.shared import run_report, training_plan

    plan = training_plan.make(
        settings, experiment.num_replicas, len(data.train)
    )
    run_report.print_line(f"placement: {settings.placement}")
    experiment.begin(data.description, plan)
    model = experiment.build(
        build_model, settings, data, plan, experiment.devices
    )
    training, validation = review_batches.training_and_validation(
        data.texts,
        data.ratings,
        data.train,
        data.held_out,
        plan.global_batch_size,
        settings.seed,
        experiment.first_step,
    )
    experiment.fit(
        model,
        training,
        validation,
        {
            "loss": "training MSE",
            "val_loss": "held-out MSE",
            "examples_per_second": "examples/s",
        },
    )
    last = experiment.history[-1]
    result = experiment.finish(
        model,
        last["loss"],
        "training MSE",
        figures={
            "mse": ("held-out MSE", last["val_loss"]),
            "rmse": ("held-out RMSE (stars)", math.sqrt(last["val_loss"])),
            "biases_mse": ("biases alone, held-out MSE", data.biases_mse),
            "mean_mse": ("mean alone, held-out MSE", data.mean_mse),
        },
        curve=run_report.Curve(
            "MSE",
            {"loss": "training", "val_loss": "held out"},
            reference=data.biases_mse,
            reference_label="biases alone",
        ),
    )
    # Last, since the profiled steps go on training the model.
    copies = comparison.profile(settings, model, training)
    row = comparison.Row(
        settings.placement,
        comparison.seconds_per_epoch(experiment.history),
        copies,
        result,
    )
    comparison.print_operations(row)
    return row
