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

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from absl import flags

from kerasmgpu import _import_on_use
from kerasmgpu.commands import flag_parsing
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.datasets import MOVIELENS
from kerasmgpu.recipes.shared import run_folder, shared_flags
from kerasmgpu.recipes.shared.flag_definitions import Definitions, integers
from kerasmgpu.recipes.shared.training_plan import TrainingPlan
from kerasmgpu.stores.places import local_copy

_import_on_use(__name__)

if TYPE_CHECKING:
    import keras

    from kerasmgpu.recipes.shared.run_report import Result

_LOSS = "whole-row loss (training)"
_WHY_WORSE = {
    "published": "worse than the baseline: its loss is over whole rows, where a "
    "missing rating is 0, and rewards predicting 0",
    "residual": "worse than the baseline: it has learned too little, or its "
    "training set by heart; change --steps or --weight_penalty",
}
"""Why a network may predict ratings worse than biases do."""


def define_flags(flag_values: flags.FlagValues) -> None:
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
    shared_flags.define_data(flag_values, MOVIELENS)
    flag = Definitions(flag_values)
    # fmt: off
    flag.choice("network", "residual", ["residual", "published"],
        "residual: AutoRec on what biases leave, trained on known ratings; "
        "published: all sigmoid, trained on whole rows with 0 for missing.")
    flag.choice("rows", "item", ["user", "item"],
        "What a row is: the ratings of one user, or those of one item.")
    flag.strings("hidden_units", ["200"],
        "Units of each hidden layer, separated by commas.")
    flag.number("weight_penalty", 100.0,
        "AutoRec's lambda: half of it times the sum of squared weights is "
        "added to the squared error of all ratings (residual network).",
        least=0)
    flag.choice("optimizer", "adam", ["adam", "rmsprop", "sgd"],
        "Keras optimizer.")
    flag.choice("learning_rate_decay", "cosine", ["cosine", "none"],
        "How the learning rate falls over the run.")
    shared_flags.define_held_out(flag_values, 0.1,
        "Fraction of the ratings that is held out.")
    flag.string("test_path", None,
        "Ratings to hold out, of a split that is given as two files (u1.test "
        "beside --data_path=u1.base). All of --data_path is trained on then; "
        "each epoch is validated on --test_path, and nothing is chosen by it.")
    # fmt: on


def hidden_units(settings: SimpleNamespace) -> list[int]:
    """The units of each hidden layer, from 1 to 100,000."""
    units = integers(settings.hidden_units)
    if not units or min(units) < 1 or max(units) > 100_000:
        raise InputError(
            "--hidden_units must be integers from 1 to 100000, such as "
            f"10,5,10. Received: {','.join(map(str, settings.hidden_units))}"
        )
    return units


def check(settings: SimpleNamespace) -> None:
    """Validates combinations of this recipe's settings."""
    hidden_units(settings)
    if settings.test_path is not None and settings.data_path is None:
        raise InputError(
            "--test_path needs --data_path, the ratings to train on. Received: "
            f"--test_path={settings.test_path} alone"
        )
    for flag in ("data_path", "dataset"):
        source = getattr(settings, flag)
        if source is not None:
            flag_parsing.require_package(
                "polars", "polars", f"--{flag}={source}"
            )


def load_data(settings: SimpleNamespace) -> SimpleNamespace:
    """Loads or generates the ratings, splits them, fits biases.

    Returns `train` and `held_out` (`SparseRows`), the `biases` of the training
    ratings and their `baseline_rmse`, `callbacks` that the data need, and a
    `description`.
    """
    from kerasmgpu.recipes.datasets.ratings import fit_biases, generate
    from kerasmgpu.recipes.datasets.sparse_rows import SparseRows

    source = settings.dataset
    if settings.data_path:
        source = local_copy(settings.data_path)
    if source:
        from kerasmgpu.recipes.datasets import movielens
    unknown: Any = ()
    if settings.test_path:
        train, held_out, unknown = movielens.load_split(
            source, local_copy(settings.test_path), settings.data_dir
        )
        description = f"{train.description}; {held_out.description}"
    else:
        if source:
            ratings = movielens.load(source, cache_dir=settings.data_dir)
        else:
            ratings = generate()
        train, held_out = ratings.split(settings.held_out, settings.seed)
        description = ratings.description
    biases = fit_biases(train)
    data = SimpleNamespace(
        train=SparseRows.from_ratings(train, rows=settings.rows),
        held_out=SparseRows.from_ratings(held_out, rows=settings.rows),
        biases=biases,
        baseline_rmse=biases.root_mean_squared_error(held_out),
        callbacks=[],
        description=description,
    )
    if len(unknown):
        from kerasmgpu.recipes.autoencoder import unknown_ratings

        default = unknown_ratings.default_rating(biases)
        counted = unknown_ratings.WithUnknown(len(held_out), unknown, default)
        data.callbacks.append(counted)
        data.baseline_rmse = counted.over_all(data.baseline_rmse)
        data.description += (
            f", {len(unknown):,} of them of users or items without training "
            f"ratings, for which {default} is predicted"
        )
    return data


def build_model(
    settings: SimpleNamespace, data: SimpleNamespace, plan: TrainingPlan
) -> "keras.Model":
    """Builds and compiles the network, in the strategy's scope."""
    import keras

    from kerasmgpu.recipes.autoencoder import autorec, losses

    keras.utils.set_random_seed(settings.seed)
    biases, columns = data.biases, data.train.num_columns
    units = hidden_units(settings)
    if settings.network == "published":
        model = autorec.published_autoencoder(columns, units, biases.max_rating)
        loss = losses.WholeRowSquaredError(biases.max_rating)
    else:
        # The loss is a mean over rows, AutoRec's is a sum.
        penalty = settings.weight_penalty / 2 / data.train.num_rows
        model = autorec.residual_autoencoder(columns, units, penalty)
        of_items = settings.rows == "user"
        model.get_layer("biases").set_biases(
            biases.mean, biases.item_biases if of_items else biases.user_biases
        )
        loss = losses.ObservedSquaredError()
    optimizer = {
        "adam": keras.optimizers.Adam,
        "rmsprop": keras.optimizers.RMSprop,
        "sgd": keras.optimizers.SGD,
    }[settings.optimizer]
    decay, initial = settings.learning_rate_decay, settings.learning_rate
    model.compile(
        optimizer(plan.schedule(decay, initial)),
        loss=loss,
        metrics=[
            losses.ObservedRMSE(biases.min_rating, biases.max_rating),
            losses.WholeRowLoss(biases.max_rating),
        ],
        # XLA compiles for fixed shapes, and batches differ in their number of
        # ratings: it would compile anew in each step.
        jit_compile=False,
    )
    return model


def run(**keywords: Any) -> "Result":
    """Trains the autoencoder once; every flag is a keyword."""
    settings = shared_flags.settings(define_flags, keywords)
    check(settings)
    run_folder.require_place(settings)
    data = load_data(settings)
    from kerasmgpu.recipes.datasets import sparse_rows
    from kerasmgpu.recipes.shared import run_report, training_run

    experiment = training_run.TrainingRun(settings)
    # The global batch and its learning rate, the length and the warm-up.
    plan = experiment.plan_for(data.train.num_rows)
    experiment.begin(data.description)
    with experiment.strategy.scope():
        model = build_model(settings, data, plan)
    training, validation = sparse_rows.training_and_validation(
        data.train,
        data.held_out,
        plan.global_batch_size,
        settings.seed,
        experiment.first_step,
    )
    progress = {
        "loss": "loss",
        "rmse": "RMSE",
        "val_rmse": "held-out RMSE",
    }
    model.fit(
        training,
        validation_data=validation,
        **experiment.fit_settings(progress, data.callbacks),
    )
    figures = {
        "rmse": ("held-out RMSE", experiment.history[-1]["val_rmse"]),
        "baseline_rmse": ("baseline RMSE", data.baseline_rmse),
    }
    curves = {"rmse": "training", "val_rmse": "held out"}
    curve = run_report.Curve("RMSE (stars)", curves, data.baseline_rmse)
    notes = {}
    if figures["rmse"][1] > data.baseline_rmse:
        notes["rmse"] = _WHY_WORSE[settings.network]
    return experiment.finish(
        model, "whole_row_loss", _LOSS, figures, curve, notes
    )
