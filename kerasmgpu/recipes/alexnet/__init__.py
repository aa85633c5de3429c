"""Image classification with large batches, on any number of replicas.

    python -m kerasmgpu.recipes.alexnet --num_replicas=2 --virtual_devices=2

AlexNet, ResNet-50 or WideResNet-28 learns the classes of images: of a folder
tree, of TFRecords, of one of Keras's data sets or, by default, of drawings that
need no file. `--compare_input` tells whether the devices wait for the images;
`--preset=batch_study` compares batch sizes and rules for the learning rate.

With these settings and seed 1, two replicas took 69 seconds on two busy CPU
cores and reached a held-out accuracy of 0.963 (chance is 0.1).
More: `recipes/alexnet/`.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from absl import flags

from kerasmgpu import _import_on_use
from kerasmgpu.recipes.alexnet import image_flags
from kerasmgpu.recipes.shared import run_folder, shared_flags
from kerasmgpu.recipes.shared.training_plan import TrainingPlan

_import_on_use(__name__)

if TYPE_CHECKING:
    import keras

_LOSS = "training loss with weight penalty"


def define_flags(flag_values: flags.FlagValues) -> None:
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


def build_model(
    settings: SimpleNamespace,
    shape: tuple[int, int, int],
    num_classes: int,
    plan: TrainingPlan,
    with_images: bool = True,
) -> "keras.Model":
    """Builds and compiles the network, in the strategy's scope.

    `shape` is height, width and channels. Without `with_images` the input is
    indices of images that the network itself generates (`synthetic`).
    """
    import keras

    from kerasmgpu.recipes.alexnet import networks, optimizers, synthetic

    keras.utils.set_random_seed(settings.seed)
    name = settings.network
    width = settings.width or networks.WIDTHS[name]
    # Of SGD, weight decay is a penalty in the loss; else the optimizer's.
    penalty = settings.weight_decay if settings.optimizer == "sgd" else 0.0
    with networks.precision(settings.mixed_precision):
        model = networks.build(name, shape, num_classes, width, penalty)
        if not with_images:
            model = synthetic.in_front_of(model, shape)
    model.compile(
        optimizers.build(settings, plan, model),
        loss=keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=settings.label_smoothing
        ),
        metrics=["accuracy"],
    )
    return model


def run(**keywords: Any) -> Any:
    """Trains a network once, or compares batches; every flag is a keyword.

    Returns a `run_report.Result`, or with `batch_sizes` what `study.run` does.
    """
    settings = shared_flags.settings(define_flags, keywords)
    image_flags.check(settings)
    if settings.batch_sizes:
        from kerasmgpu.recipes.alexnet import study

        defaults = shared_flags.settings(define_flags, {})
        return study.run(settings, defaults, build_model)
    run_folder.require_place(settings)
    image_flags.require_packages(settings)
    from kerasmgpu.recipes.alexnet import figures, left_out, networks, synthetic
    from kerasmgpu.recipes.datasets import image_batches, images
    from kerasmgpu.recipes.shared import run_report, training_run

    experiment = training_run.TrainingRun(settings)
    data = images.load(settings)
    shape = networks.image_shape(settings, data)
    # The global batch and its learning rate, the length and the warm-up.
    plan = experiment.plan_for(len(data.train))
    left_out_images = left_out.LeftOutImages(experiment.folder)
    batches: Any = None
    if settings.dataset != "synthetic":
        batches = image_batches.ImageBatches(
            data,
            shape[0],
            plan.global_batch_size,
            settings.seed,
            settings.augment,
            left_out_images.add,
        )
    experiment.begin(data.description)
    training = made_up = synthetic.batches(
        plan.global_batch_size, data.num_classes
    )
    held_out = None
    if batches:
        training = batches.training(experiment.first_step)
        held_out = batches.held_out()
    arguments = settings, shape, data.num_classes, plan
    with experiment.strategy.scope():
        model = build_model(*arguments, with_images=bool(batches))
    progress = {
        "loss": _LOSS,
        "accuracy": "training accuracy",
        "val_accuracy": "held-out accuracy",
    }
    model.fit(
        training,
        validation_data=held_out,
        **experiment.fit_settings(progress, [left_out_images]),
    )
    found = figures.of(experiment.history, left_out_images)
    if settings.compare_input:
        with experiment.strategy.scope():
            alone = build_model(*arguments, with_images=False)
        found |= figures.comparison(experiment.history, alone, made_up)
    curves = {"accuracy": "training", "val_accuracy": "held out"}
    curve = run_report.Curve("accuracy", curves, 1 / data.num_classes, "chance")
    notes: dict[str, str] = {
        name: "no better than chance: too few steps, or too high a rate"
        for name in ("accuracy", "train_accuracy")
        if name in found and found[name][1] <= 1 / data.num_classes
    }
    return experiment.finish(model, "loss", _LOSS, found, curve, notes)
