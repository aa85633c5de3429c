"""Collaborative filtering with an autoencoder, on any number of replicas.

    python -m kerasmgpu.recipes.autoencoder --num_replicas=2 --virtual_devices=2

A row of known ratings goes in, a prediction for every column comes out; the
error on ratings that were held out is printed beside that of a baseline. With
neither `--data_path` nor `--dataset` the ratings are generated.

The command above takes 21 seconds on two CPU cores and reaches a held-out RMSE
of 0.754 stars on generated ratings (baseline 0.815). On MovieLens
ml-latest-small `autorec.flags` reaches 0.839 (baseline 0.862, means of three
seeds). Presets and more results: `recipes/autoencoder/`.
"""

import dataclasses

from absl import flags

from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import early_checks, shared_flags

MOVIELENS = (
    "ml-100k",
    "ml-1m",
    "ml-10m",
    "ml-20m",
    "ml-25m",
    "ml-32m",
    "ml-latest-small",
)
"""Data sets that `movielens.load` fetches by their names."""


def define_flags(flag_values):
    """Defines this recipe's flags; each is a keyword of `run`."""
    shared_flags.define_preset(flag_values, define_flags)
    shared_flags.define(
        flag_values,
        batch_size_per_replica=125,
        learning_rate=0.003,
        # Adam and RMSProp normalise the gradient: sqrt suits them.
        learning_rate_scaling="sqrt",
        epochs=20,
    )
    shared_flags.define_data(flag_values, datasets=", ".join(MOVIELENS))
    flags.DEFINE_enum(
        "network",
        "residual",
        ["residual", "published"],
        "residual: AutoRec on what biases leave, trained on known ratings; "
        "published: all sigmoid, trained on whole rows with 0 for missing.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "rows",
        "item",
        ["user", "item"],
        "What a row is: the ratings of one user, or those of one item.",
        flag_values=flag_values,
    )
    flags.DEFINE_list(
        "hidden_units",
        ["200"],
        "Units of each hidden layer, separated by commas.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "weight_penalty",
        100.0,
        "AutoRec's lambda: half of it times the sum of squared weights is "
        "added to the squared error of all ratings (residual network).",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "optimizer",
        "adam",
        ["adam", "rmsprop", "sgd"],
        "Keras optimizer.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "learning_rate_decay",
        "cosine",
        ["cosine", "none"],
        "How the learning rate falls over the run.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "held_out",
        0.1,
        "Fraction of the ratings that is held out.",
        flag_values=flag_values,
    )
    flags.DEFINE_string(
        "test_path",
        None,
        "Ratings to hold out, of a split that is given as two files (u1.test "
        "beside --data_path=u1.base). All of --data_path is trained on then; "
        "each epoch is validated on --test_path, and nothing is chosen by it.",
        flag_values=flag_values,
    )


def build_model(settings, data, plan):
    """Builds and compiles the network, in the strategy's scope."""
    import keras

    from kerasmgpu.recipes.autoencoder import rating_autoencoder, rating_losses
    from kerasmgpu.recipes.shared import optimizers

    keras.utils.set_random_seed(settings.seed)
    biases = data.biases
    units = hidden_units(settings)
    if settings.network == "published":
        model = rating_autoencoder.published_autoencoder(
            data.train.num_columns, units, max_rating=biases.max_rating
        )
        loss = rating_losses.WholeRowSquaredError(biases.max_rating)
    else:
        model = rating_autoencoder.residual_autoencoder(
            data.train.num_columns,
            units,
            # The loss is a mean over rows, AutoRec's is a sum.
            weight_penalty=settings.weight_penalty / 2 / data.train.num_rows,
        )
        column_biases = (
            biases.user_biases
            if settings.rows == "item"
            else biases.item_biases
        )
        model.get_layer("biases").set_biases(biases.mean, column_biases)
        loss = rating_losses.ObservedSquaredError()
    model.compile(
        optimizers.build(
            settings.optimizer,
            plan,
            settings.learning_rate_decay,
            initial_learning_rate=settings.learning_rate,
        ),
        loss=loss,
        metrics=[
            rating_losses.ObservedRMSE(biases.min_rating, biases.max_rating),
            rating_losses.WholeRowLoss(biases.max_rating),
        ],
        # XLA compiles for fixed shapes, and batches differ in their number of
        # ratings: it would compile anew in each step.
        jit_compile=False,
    )
    return model


def hidden_units(settings):
    """The flag's list of texts as a list of integers.

    Raises:
        InputError: If a text is no integer from 1 to 100,000.
    """
    try:
        units = [int(text) for text in settings.hidden_units]
    except ValueError:
        units = []
    if not units or min(units) < 1 or max(units) > 100_000:
        raise InputError(
            "--hidden_units must be integers from 1 to 100000, such as "
            f"10,5,10. Received: {','.join(map(str, settings.hidden_units))}"
        )
    return units


def check(settings):
    """Refuses this recipe's own settings that can't be meant."""
    hidden_units(settings)
    if settings.weight_penalty < 0:
        raise InputError(
            "--weight_penalty must be 0 or more. Received: "
            f"{settings.weight_penalty}"
        )
    if settings.test_path is not None and settings.data_path is None:
        raise InputError(
            "--test_path needs --data_path, the ratings to train on. Received: "
            f"--test_path={settings.test_path} alone"
        )


@dataclasses.dataclass(frozen=True)
class Data:
    """Sparse rows to train on and held out, and what is known beforehand.

    Args:
        train: `sparse_rows.SparseRows`.
        held_out: The same, of other ratings.
        biases: `rating_biases.Biases` of the ratings to train on.
        baseline_rmse: Float, error of these on what is held out.
        with_unknown: `unknown_ratings.WithUnknown`, or `None` where all
            ratings that are held out go through the network.
        description: One line for people.
    """

    train: object
    held_out: object
    biases: object
    baseline_rmse: float
    with_unknown: object
    description: str


def load_data(settings):
    """Loads or generates the ratings, splits them, fits biases."""
    from kerasmgpu.recipes.autoencoder import (
        generated_ratings,
        given_split,
        movielens,
        rating_biases,
        sparse_rows,
    )

    source = settings.data_path or settings.dataset
    unknown = ()
    if settings.test_path:
        train, held_out, unknown = given_split.load(
            settings.data_path, settings.test_path, settings.data_dir
        )
        description = f"{train.description}; {held_out.description}"
    else:
        if source:
            ratings = movielens.load(source, cache_dir=settings.data_dir)
        else:
            ratings = generated_ratings.generate()
        train, held_out = ratings.split(settings.held_out, settings.seed)
        description = ratings.description
    biases = rating_biases.fit(train)
    baseline_rmse = biases.root_mean_squared_error(held_out)
    with_unknown = None
    if len(unknown):
        from kerasmgpu.recipes.autoencoder import unknown_ratings

        default = unknown_ratings.default_rating(biases)
        with_unknown = unknown_ratings.WithUnknown(
            len(held_out), unknown, default
        )
        baseline_rmse = with_unknown.over_all(baseline_rmse)
        description += (
            f", {len(unknown):,} of them of users or items without training "
            f"ratings, for which {default} is predicted"
        )
    return Data(
        sparse_rows.SparseRows.from_ratings(train, rows=settings.rows),
        sparse_rows.SparseRows.from_ratings(held_out, rows=settings.rows),
        biases,
        baseline_rmse,
        with_unknown,
        description,
    )


def run(**keywords):
    """Trains the autoencoder once; every flag is a keyword.

    Args:
        **keywords: See `--help`; what is left out has the flag's default.

    Returns:
        A `run_report.Result`.

    Raises:
        InputError: If a setting, the data or the output folder can't be used.
    """
    settings = shared_flags.settings(define_flags, keywords)
    check(settings)
    early_checks.require_place(settings)
    data = load_data(settings)
    from kerasmgpu.recipes.autoencoder import rating_batches
    from kerasmgpu.recipes.shared import run_report, training_plan, training_run

    experiment = training_run.TrainingRun(settings)
    plan = training_plan.make(
        settings, experiment.num_replicas, data.train.num_rows
    )
    experiment.begin(data.description, plan)
    model = experiment.build(build_model, settings, data, plan)
    training, validation = rating_batches.training_and_validation(
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
            "loss": "training loss",
            "whole_row_loss": "whole-row loss (training)",
            "rmse": "training RMSE",
            "val_rmse": "held-out RMSE",
            "examples_per_second": "examples/s",
        },
        callbacks=[data.with_unknown] if data.with_unknown else [],
    )
    last = experiment.history[-1]
    return experiment.finish(
        model,
        last["whole_row_loss"],
        "whole-row loss (training)",
        figures={
            "rmse": ("held-out RMSE", last["val_rmse"]),
            "baseline_rmse": ("baseline RMSE", data.baseline_rmse),
        },
        curve=run_report.Curve(
            "RMSE (stars)",
            {"rmse": "training", "val_rmse": "held out"},
            reference=data.baseline_rmse,
        ),
    )
