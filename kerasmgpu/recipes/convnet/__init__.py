"""Any Keras model on any number of GPUs: one `n_gpus` in a YAML file.

    python -m kerasmgpu.recipes.convnet --num_replicas=2 --virtual_devices=2

The file names a model, data, an optimizer and callbacks by their dotted names;
nothing of the program changes with the number of GPUs. Such a file is code: run
only those that you trust.

    model: {class: my_nets.ConvNet, n_gpus: 4, filters: [16, 32]}
    dataset: {class: my_data.photos}
    loss: sparse_categorical_crossentropy
    optimizer: {class: keras.optimizers.Adam, learning_rate: 1e-3}
    training: {global_batch_size: 256, epochs: 10}

`n_gpus: 0` is the CPU. Without `--config` a small network learns to tell the
angle of drawn stripes: the command takes 11 seconds on two CPU cores and ends
at an accuracy of 1.000 on 1,000 images that it was not trained on.
More: `recipes/convnet/`.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from absl import flags

from kerasmgpu import _import_on_use
from kerasmgpu.commands import flag_parsing, plots
from kerasmgpu.errors import InputError
from kerasmgpu.job import cluster
from kerasmgpu.recipes.convnet import predictions
from kerasmgpu.recipes.shared import shared_flags
from kerasmgpu.recipes.shared.flag_definitions import Definitions

_import_on_use(__name__)

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from kerasmgpu.recipes.convnet.input_data import Data
    from kerasmgpu.recipes.convnet.yaml_sections import Section
    from kerasmgpu.recipes.shared.run_report import Result
    from kerasmgpu.recipes.shared.training_run import TrainingRun

_EXAMPLE = "gratings"
_LOSS = "loss (training)"


def define_flags(flag_values: flags.FlagValues) -> None:
    """Defines this recipe's flags; each is a keyword of `run`."""
    shared_flags.define_preset(flag_values, define_flags, ".yaml")
    shared_flags.define_devices(flag_values)
    shared_flags.define_output(
        flag_values, longer="training.epochs may be raised. "
    )
    flag = Definitions(flag_values)
    # fmt: off
    flag.string("config", None,
        "YAML file of the model, the data and the training. Left out: a small "
        "example.")
    flag.repeated("set", [],
        "key=value, in place of what the file says: --set model.n_gpus=2. May "
        "be given again. --num_replicas=2 is short for this one.")
    flag.string("restore", None,
        "Folder of an earlier run whose model predicts; nothing is trained. "
        "Needs --predictions.")
    flag.string("predictions", None,
        "File for the model's predictions, in the order of the data: of the "
        "data's part for it, or else of what it validates or trains on. Its "
        "ending, .npy or .csv, decides the format.")
    # fmt: on


def check(settings: SimpleNamespace) -> None:
    """Validates combinations of this recipe's settings."""
    if settings.predictions is not None:
        predictions.require_new(settings.predictions)
    for assignment in settings.set:
        short = assignment.partition("=")[0].strip() == "model.n_gpus"
        if short and settings.num_replicas is not None:
            raise InputError(
                "--num_replicas is short for --set model.n_gpus; give one of "
                f"them. Received: --num_replicas={settings.num_replicas} and "
                f"--set {assignment}"
            )
    if settings.restore is None:
        return
    if settings.predictions is None:
        raise InputError(
            "--restore needs --predictions: a file for what the model "
            "predicts. Received: no --predictions"
        )
    if settings.output_dir is not None:
        raise InputError(
            "--restore trains nothing, so --output_dir stays empty. "
            "Received: both; give --predictions only"
        )


def make_strategy(
    settings: SimpleNamespace, config: "Section"
) -> "tf.distribute.Strategy":
    """The strategy for `n_gpus` devices: GPUs, or the CPU for 0."""
    import tensorflow as tf

    import kerasmgpu
    from kerasmgpu.recipes.shared import training_run

    count = config["model"]["n_gpus"]
    if count == 0:
        return kerasmgpu.strategy(devices=["CPU:0"])
    on_gpus = tf.config.list_physical_devices("GPU")
    if not on_gpus and not settings.virtual_devices:
        raise config["model"].error(
            "n_gpus",
            f"is {count}, but no GPU is visible. 0 is the CPU; "
            f"--virtual_devices={count} makes devices of it",
        )
    return training_run.make_strategy(settings, num_replicas=count)


def run(**keywords: Any) -> "Result | None":
    """Trains the configured model, or restores it; every flag is a keyword.

    Returns a `run_report.Result`, or `None` where a model is restored.
    """
    preset = keywords.pop("preset", None)
    if keywords.get("config") is None:
        keywords["config"] = shared_flags.preset_path(
            define_flags, preset or _EXAMPLE, ".yaml"
        )
    elif preset is not None:
        raise InputError(
            "A preset is a configuration. Received: --preset and --config; "
            "give one of them"
        )
    settings = shared_flags.settings(define_flags, keywords)
    check(settings)
    flag_parsing.require_package("yaml", "pyyaml", "the convnet recipe")
    from kerasmgpu.recipes.convnet import configuration

    config = configuration.load(settings)
    if settings.output_dir is not None and cluster.is_first_worker():
        plots.tell_if_missing()
    # TensorFlow is imported only once the file has been checked.
    from kerasmgpu.recipes.convnet import input_data
    from kerasmgpu.recipes.shared import run_report, training_run

    strategy = make_strategy(settings, config)
    # `require_same` compares what the file decides.
    own = ("config", "set", "num_replicas", "restore", "predictions")
    rest = {k: v for k, v in vars(settings).items() if k not in own}
    experiment = training_run.TrainingRun(SimpleNamespace(**rest), strategy)
    configuration.require_same(experiment.folder, config)
    data = input_data.load(config)
    # Before the training: refuses data that can't be predicted.
    to_predict = data.prediction if settings.predictions is not None else None
    with experiment.strategy.scope():
        model = configuration.build_model(config, data)
    result = None
    if settings.restore is None:
        result = train(experiment, model, config, data)
    else:
        predictions.restore(model, settings.restore)
    if to_predict is not None:
        rows, part = to_predict
        outputs = model.predict(rows, verbose=0)
        predictions.write(outputs, settings.predictions)
        run_report.print_line(
            f"{len(outputs):,} predictions of the {part} data: "
            f"{settings.predictions}"
        )
    return result


def train(
    experiment: "TrainingRun",
    model: "keras.Model",
    config: "Section",
    data: "Data",
) -> "Result":
    """Trains the remaining epochs."""
    from kerasmgpu.recipes.convnet import configuration
    from kerasmgpu.recipes.shared import run_report, training_plan

    callbacks = configuration.build_callbacks(config)
    experiment.plan = training_plan.TrainingPlan(
        experiment.num_replicas,
        data.global_batch_size,
        float(model.optimizer.learning_rate),
        data.steps_per_epoch,
        config["training"]["epochs"],
        warmup_steps=0,
    )
    experiment.begin(data.description, data_goes_on=data.goes_on)
    configuration.keep(experiment.folder, config)
    metrics = config.get("metrics", [])
    names = [name for name in metrics if isinstance(name, str)]
    names += [f"val_{name}" for name in ("loss", *names)]
    progress = {"loss": _LOSS, **dict(zip(names, names))}
    fit_settings = experiment.fit_settings(progress, callbacks)
    if data.is_one_pass:
        fit_settings["steps_per_epoch"] = None
    model.fit(
        data.training(experiment.first_step),
        validation_data=data.validation,
        **fit_settings,
    )
    last = experiment.history[-1]
    figures = {name: (name, last[name]) for name in names if name in last}
    curves = {"loss": "training"}
    if "val_loss" in last:
        curves["val_loss"] = "validation"
    curve = run_report.Curve("loss", curves)
    return experiment.finish(model, "loss", _LOSS, figures, curve)
