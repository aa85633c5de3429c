"""Image classification, and what a large batch needs, on any number of replicas.

    python -m kerasmgpu.recipes.alexnet --num_replicas=2 --virtual_devices=2

AlexNet, ResNet-50 or WideResNet-28 learns the classes of images: of a folder
tree, of TFRecords, of one of Keras's data sets or, by default, of drawings that
need no file. `--compare_input` tells whether the devices wait for the images.
Accuracy against the batch size is the study beside it:
`python -m kerasmgpu.recipes.image_batch_study`.

With these settings and seed 1, two replicas took 69 seconds on two busy CPU
cores and reached a held-out accuracy of 0.963 (chance is 0.1).
More: `recipes/alexnet/`.
"""

import types

from kerasmgpu.recipes.alexnet import image_flags
from kerasmgpu.recipes.shared import early_checks, shared_flags

_LOSS = "training loss with weight penalty"


def define_flags(flag_values):
    """Defines this recipe's flags; each is a keyword of `run`."""
    shared_flags.define_preset(flag_values, define_flags)
    shared_flags.define(
        flag_values,
        batch_size_per_replica=16,
        learning_rate=0.01,
        learning_rate_scaling="linear",
        epochs=6,
    )
    image_flags.define(flag_values)


def make_plan(settings, num_replicas, num_rows):
    """The `TrainingPlan`, with the warm-up's epochs in steps."""
    from kerasmgpu.recipes.shared import training_plan

    plan = training_plan.make(settings, num_replicas, num_rows)
    if not settings.warmup_epochs:
        return plan
    steps_per_pass = -(-num_rows // plan.global_batch_size)
    chosen = vars(settings) | {
        "warmup_steps": settings.warmup_epochs * steps_per_pass
    }
    return training_plan.make(
        types.SimpleNamespace(**chosen), num_replicas, num_rows
    )


def build_model(settings, shape, num_classes, plan, with_images=True):
    """Builds and compiles the network, in the strategy's scope.

    Args:
        settings: The recipe's settings.
        shape: Height, width and channels.
        num_classes: Integer.
        plan: `TrainingPlan`.
        with_images: Whether images go in, or numbers of those that the
            network makes up itself (`image_bank`). Defaults to `True`.
    """
    import keras

    from kerasmgpu.recipes.alexnet import (
        image_bank,
        image_networks,
        image_optimizers,
    )

    keras.utils.set_random_seed(settings.seed)
    with image_networks.precision(settings.mixed_precision):
        model = image_networks.build(
            settings.network,
            shape,
            num_classes,
            settings.width or image_networks.WIDTHS[settings.network],
            image_optimizers.penalty(settings),
        )
        if not with_images:
            model = image_bank.in_front_of(model, shape)
    model.compile(
        image_optimizers.build(settings, plan, model),
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=settings.label_smoothing
        ),
        metrics=["accuracy"],
    )
    return model


def make_batches(settings, shape, data, plan, left_out):
    """What trains and validates: `ImageBatches`, or made-up ones.

    Args:
        settings: The recipe's settings.
        shape: Height, width and channels.
        data: `images.ImageData`.
        plan: `TrainingPlan`.
        left_out: `left_out_images.LeftOutImages`, told of each.
    """
    from kerasmgpu.recipes.alexnet import image_bank, image_batches

    if settings.dataset == "synthetic":
        return image_bank.SyntheticBatches(
            plan.global_batch_size, data.num_classes
        )
    return image_batches.ImageBatches(
        data,
        shape[0],
        plan.global_batch_size,
        settings.seed,
        settings.augment,
        left_out.add,
    )


def run(**keywords):
    """Trains a network once; every flag is a keyword.

    Args:
        **keywords: See `--help`; what is left out has the flag's default.

    Returns:
        A `run_report.Result`.

    Raises:
        InputError: If a setting, the data or the output folder can't be used.
    """
    settings = shared_flags.settings(define_flags, keywords)
    image_flags.check(settings)
    early_checks.require_place(settings)
    image_flags.require_packages(settings)
    from kerasmgpu.recipes.alexnet import (
        image_figures,
        image_sources,
        left_out_images,
    )
    from kerasmgpu.recipes.shared import run_report, training_run

    experiment = training_run.TrainingRun(settings)
    data = image_sources.load(settings)
    shape = image_sources.network_shape(settings, data)
    plan = make_plan(settings, experiment.num_replicas, len(data.train))
    left_out = left_out_images.LeftOutImages(experiment.folder)
    batches = make_batches(settings, shape, data, plan, left_out)
    experiment.begin(data.description, plan)
    with_images = settings.dataset != "synthetic"
    arguments = (build_model, settings, shape, data.num_classes, plan)
    model = experiment.build(*arguments, with_images)
    experiment.fit(
        model,
        batches.training(experiment.first_step),
        batches.held_out(),
        {
            "loss": _LOSS,
            "accuracy": "training accuracy",
            "val_accuracy": "held-out accuracy",
            "examples_per_second": "examples/s",
        },
        callbacks=[left_out],
    )
    figures = image_figures.of(experiment.history, left_out)
    if settings.compare_input:
        with experiment.strategy.scope():
            model_alone = build_model(*arguments[1:], with_images=False)
        figures |= image_figures.comparison(
            experiment.history, model_alone, plan, data.num_classes
        )
    return experiment.finish(
        model,
        experiment.history[-1]["loss"],
        _LOSS,
        figures,
        run_report.Curve(
            "accuracy",
            {"accuracy": "training", "val_accuracy": "held out"},
            reference=1 / data.num_classes,
            reference_label="chance",
        ),
    )
