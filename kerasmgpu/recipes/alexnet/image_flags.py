"""The flags of image recipes: data, network and optimizer."""

from absl import flags

from kerasmgpu.commands import extras
from kerasmgpu.errors import InputError
from kerasmgpu.recipes.shared import shared_flags


def define(
    flag_values, dataset="generated", width=None, augment=True, warmup_epochs=0
):
    """Defines them; each is a keyword of `run`.

    Args:
        flag_values: `absl.flags.FlagValues` to define them in.
        dataset: Default of that flag. Defaults to `"generated"`.
        width: Default of that flag. Defaults to `None`.
        augment: Default of that flag. Defaults to `True`.
        warmup_epochs: Default of that flag. Defaults to `0`.
    """
    shared_flags.define_data(
        flag_values,
        path_help="Folder with a folder of images per class (or train/ and "
        "val/ with these), or TFRecords: a file or their folder.",
    )
    _define_input(flag_values, dataset, augment)
    _define_network(flag_values, width)
    _define_optimizer(flag_values, warmup_epochs)


def _define_input(flag_values, dataset, augment):
    flags.DEFINE_enum(
        "dataset",
        dataset,
        ["generated", "cifar10", "fashion_mnist", "digits", "synthetic"],
        "Data where there is no --data_path. generated: drawings; cifar10, "
        "fashion_mnist: fetched by Keras; digits: scikit-learn's; synthetic: "
        "one batch that stays on the devices, to measure computing alone.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "image_size",
        None,
        "Height and width in pixels that the network sees. Left out: 224 for "
        "files and synthetic images, else that of the data.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "num_classes",
        None,
        "Classes of TFRecords (labels are below) and synthetic images. Left "
        "out: the labels of all records are read; 1000 for synthetic images.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "held_out",
        0.2,
        "Fraction of the images that is held out, where the data have no "
        "validation part.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "augment",
        augment,
        "Cut, move and mirror training images at random, where that suits the "
        "data: digits have no mirror images, drawings vary already.",
        flag_values=flag_values,
    )
    flags.DEFINE_bool(
        "compare_input",
        False,
        "Also measure computing alone, and say whether the images or the "
        "devices set the pace.",
        flag_values=flag_values,
    )


def _define_network(flag_values, width):
    flags.DEFINE_enum(
        "network",
        "alexnet",
        ["alexnet", "resnet50", "wide_resnet28"],
        "The network.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "width",
        width,
        "Factor of the network's units: 1 is the published AlexNet and "
        "ResNet-50, k is WideResNet-28-k. Left out: 0.25, 1 and 10.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "mixed_precision",
        "none",
        ["none", "float16", "bfloat16"],
        "Type that layers compute in; weights stay float32. float16 scales "
        "the loss, and is for GPUs.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "batch_norm",
        "global",
        ["global", "per_replica"],
        "Rows whose mean and variance normalise: those of the global batch, "
        "or (Goyal et al.) each replica's own, without a collective per layer.",
        flag_values=flag_values,
    )


def _define_optimizer(flag_values, warmup_epochs):
    flags.DEFINE_enum(
        "optimizer",
        "sgd",
        ["sgd", "lars", "lamb"],
        "sgd has momentum; lars and lamb are for very large batches.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "momentum", 0.9, "Of sgd and lars.", flag_values=flag_values
    )
    flags.DEFINE_float(
        "weight_decay",
        5e-4,
        "Of kernels; biases and scales of batch normalisation have none.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "trust_coefficient",
        0.001,
        "Of lars: share of a layer's weights that a step changes at learning "
        "rate 1.",
        flag_values=flag_values,
    )
    flags.DEFINE_integer(
        "warmup_epochs",
        warmup_epochs,
        "Passes over the data in which the learning rate rises to its full "
        "value, from that of one replica; --warmup_steps in other words.",
        flag_values=flag_values,
    )
    flags.DEFINE_enum(
        "learning_rate_decay",
        "cosine",
        ["cosine", "stairs", "none"],
        "How the learning rate falls over the run; stairs: to a tenth after "
        "30, 60 and 80 of 90 parts.",
        flag_values=flag_values,
    )
    flags.DEFINE_float(
        "label_smoothing",
        0.0,
        "Share of each label that is spread over all classes.",
        flag_values=flag_values,
    )


def require_packages(settings):
    """Refuses settings that need what isn't installed."""
    if settings.dataset == "digits" and not settings.data_path:
        extras.require("sklearn", "scikit-learn", "digits", "--dataset=digits")


def check(settings):
    """Refuses settings that can't be meant."""
    for name, least, most in (
        ("image_size", 8, 4096),
        ("num_classes", 2, 10**7),
        ("warmup_epochs", 0, None),
        ("weight_decay", 0, None),
        ("momentum", 0, 1),
        ("label_smoothing", 0, 1),
    ):
        value = getattr(settings, name)
        if value is None:
            continue
        if not value >= least or (most is not None and value > most):
            upto = "" if most is None else f" and at most {most}"
            raise InputError(
                f"--{name} must be at least {least}{upto}. Received: {value}"
            )
    if settings.width is not None and not 0 < settings.width <= 64:
        raise InputError(
            "--width must be above 0 and at most 64. Received: "
            f"{settings.width}"
        )
    if getattr(settings, "warmup_steps", 0) and settings.warmup_epochs:
        raise InputError(
            "Give either --warmup_steps or --warmup_epochs. Received: both"
        )
    if settings.compare_input and settings.dataset == "synthetic":
        raise InputError(
            "--compare_input compares images with synthetic ones. Received: "
            "--dataset=synthetic, which has no others"
        )
